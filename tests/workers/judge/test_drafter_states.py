"""Drafter states: hidden states and draft logits of the right request and position are accepted, others reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from tests.workers.judge.histories import Part, changed, opened, pass_of, reported, shown, step_of, without
from workers.judge.drafter_states import DrafterStates
from workers.judge.history import History
from workers.judge.judge import End
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, fact

PROMPTS, TABLES = ([1, 2, 3], [4, 5]), ([7, 8], [5, 6])
WHERE = "variable", "request", "step", "position"


def states(positions: Sequence[int], request: int, base: int = 0) -> list[int]:
    """Return digests of hidden states of a request at positions; those of the drafter have another base."""
    return [base + 100 * request + position for position in positions]


def returned(number: int, *parts: Part) -> EngineRecord:
    digests = [digest for part in parts for digest in states(part.positions, part.request)]
    return shown("hidden_states", number, [part.request for part in parts], hidden_states=digests)


def first_pass(number: int, *parts: Part) -> list[EngineRecord]:
    """Return the first draft pass of a step, with what the drafter's model returned and its draft logits."""
    requests = [part.request for part in parts]
    given = [digest for part in parts for digest in states(part.positions, part.request)]
    made = [digest for part in parts for digest in states(part.positions, part.request, 1000)]
    return [
        pass_of(number, 0, *parts, hidden_states=given),
        shown("hidden_states", number, requests, draft_pass=0, hidden_states=made),
        shown("margins", number, requests, margins=[1.0] * len(parts), draft_logits=logits(number, 0, requests)),
    ]


def later_pass(number: int, lasts: Sequence[int]) -> list[EngineRecord]:
    """Return the second draft pass of a step, for requests with these last accepted positions."""
    requests = list(range(len(lasts)))
    parts = [Part(request, last + 1, [20], TABLES[request]) for request, last in enumerate(lasts)]
    given = [digest for request, last in enumerate(lasts) for digest in states([last], request, 1000)]
    return [
        pass_of(number, 1, *parts, hidden_states=given),
        shown("hidden_states", number, requests, draft_pass=1, hidden_states=[*range(len(lasts))]),
        shown("margins", number, requests, margins=[1.0] * len(lasts), draft_logits=logits(number, 1, requests)),
    ]


def logits(number: int, index: int, requests: Sequence[int]) -> list[int]:
    return [10_000 * (number + 1) + 100 * request + index for request in requests]


def run() -> list[EngineRecord]:
    """Return two steps of two requests; of two drafts each, the second of request 0 is rejected."""
    prompts = [Part(row, 0, PROMPTS[row], TABLES[row], begun=PROMPTS[row]) for row in (0, 1)]
    drafts = [Part(0, 3, [6, 20, 21], TABLES[0], 2), Part(1, 2, [7, 22, 23], TABLES[1], 2)]
    verified = [logits(0, 0, [0]) + logits(0, 1, [0]), logits(0, 0, [1]) + logits(0, 1, [1])]
    return [
        *step_of(0, *prompts),
        returned(0, *prompts),
        *first_pass(0, *prompts),
        *later_pass(0, [2, 1]),
        shown("proposed", 0, [0, 1], proposed=[[20, 21], [22, 23]]),
        shown("processed", 0, [0, 1], sampled=[[6], [7]]),
        *step_of(1, *drafts),
        returned(1, *drafts),
        shown("draft_logits", 1, [0, 1], normalizers=verified, acceptance=verified),
        *first_pass(1, *drafts),
        *later_pass(1, [4, 4]),
        shown("proposed", 1, [0, 1], proposed=[[24, 25], [26, 27]]),
        shown("processed", 1, [0, 1], sampled=[[20, 9], [22, 23, 8]]),
    ]


def judged(seen: Sequence[EngineRecord], temperature: float = 1.0, **sizes: Any) -> Difference | None:
    traits = {"receives_hidden_states": True, "keeps_draft_logits": True, "drafts_max": 2, "draft_shift": 1, **sizes}
    history = History.of([opened(**traits), *seen])
    params = SamplingParams(temperature=temperature)
    submits = [Submit(tick=0, request=name, prompt=(1,), max_tokens=9, params=params) for name in "ab"]
    return DrafterStates().at_end(End(9, {}, history=history, submits=submits))


def test_states_and_logits_of_their_own_requests_are_accepted() -> None:
    assert judged(run()) is None


def test_states_of_a_rejected_draft_are_not_checked() -> None:
    assert judged(changed(run(), (1, "drafting", 0, "hidden_states", 2, 5))) is None


@pytest.mark.parametrize(
    ("change", "request_index", "step", "position", "expected", "actual"),
    [
        # The states of two requests are exchanged; the last accepted position is one too low.
        ((0, "drafting", 0, "hidden_states", 3, 0), 1, 0, 0, (1, 0), (0, 0)),
        ((1, "drafting", 0, "hidden_states", 1, 3), 0, 1, 4, (0, 4), (0, 3)),
        ((1, "drafting", 0, "hidden_states", 5, 99), 1, 1, 4, (1, 4), None),
    ],
)
def test_state_of_another_position_is_reported(
    change: tuple[Any, ...],
    request_index: int,
    step: int,
    position: int,
    expected: tuple[int, int],
    actual: tuple[int, int] | None,
) -> None:
    found = judged(changed(run(), change))
    assert reported(found, *WHERE) == ("hidden_states", f"submit {request_index}", step, position)
    assert found is not None
    assert found.expected == fact("hidden_state_of", request=expected[0], position=expected[1])
    other = fact("another_hidden_state")
    assert found.actual == (other if actual is None else fact("hidden_state_of", request=actual[0], position=actual[1]))


@pytest.mark.parametrize(
    ("change", "request_index", "step", "position"),
    [
        # The state of the rejected draft, of the other request, and of the position before.
        ((1, "drafting", 1, "hidden_states", 0, 1005), 0, 1, 5),
        ((0, "drafting", 1, "hidden_states", 1, 1002), 1, 0, 2),
        ((1, "drafting", 1, "hidden_states", 1, 1103), 1, 1, 5),
    ],
)
def test_state_of_another_row_in_a_later_pass_is_reported(
    change: tuple[Any, ...], request_index: int, step: int, position: int
) -> None:
    found = judged(changed(run(), change))
    assert reported(found, *WHERE) == ("hidden_states", f"submit {request_index}", step, position)


def test_states_of_last_tokens_only_are_compared_by_row() -> None:
    seen = changed(run(), (0, "hidden_states", 1, "hidden_states", [1002, 1101]))
    assert judged(seen) is None
    assert judged(changed(seen, (0, "drafting", 1, "hidden_states", 0, 1101))) is not None


def test_states_of_padding_rows_are_ignored() -> None:
    padded = changed(
        run(),
        (1, "hidden_states", 1, "hidden_states", [1003, 1004, 1005, 1102, 1103, 1104, 0, 0]),
        (1, "drafting", 0, "hidden_states", [3, 4, 5, 102, 103, 104, 0, 0]),
        (1, "drafting", 1, "hidden_states", [1004, 1104, 0, 0]),
    )
    assert judged(padded) is None


@pytest.mark.parametrize("kernel", ["normalizers", "acceptance"])
def test_draft_logits_of_another_request_are_reported(kernel: str) -> None:
    seen = changed(run(), (1, "draft_logits", kernel, 0, 1, logits(0, 1, [1])[0]))
    found = judged(seen)
    assert reported(found, *WHERE) == ("draft_logits", "submit 0", 1, 5)
    assert found is not None
    assert found.expected == fact("draft_logits_of", request=0, index=1, step=0)
    assert found.actual == fact("draft_logits_of", request=1, index=1, step=0)


def test_draft_logits_of_a_greedy_request_are_not_read() -> None:
    assert judged(changed(run(), (1, "draft_logits", "acceptance", 0, 1, 5)), temperature=0.0) is None


def test_draft_logits_of_an_earlier_step_are_reported() -> None:
    assert reported(judged(changed(run(), (1, "draft_logits", "acceptance", 1, 0, 5))), *WHERE) == (
        "draft_logits",
        "submit 1",
        1,
        3,
    )


@pytest.mark.parametrize(("point", "variable"), [("hidden_states", "hidden_states"), ("draft_logits", "draft_logits")])
def test_missing_states_of_a_drafter_are_reported(point: str, variable: str) -> None:
    found = judged(without(run(), point))
    assert found is not None
    assert (found.variable, found.actual) == (variable, fact("none_shown"))


def test_drafter_without_hidden_states_and_logits_compares_nothing() -> None:
    seen = without(run(), "hidden_states", "draft_logits")
    assert judged(seen, receives_hidden_states=False, keeps_draft_logits=False) is None


def test_parallel_drafter_stores_the_states_of_its_request() -> None:
    prompt = Part(0, 0, PROMPTS[0], TABLES[0], begun=PROMPTS[0])
    drafts = shown("drafting", 0, [0], index=0, starts=[0, 1])
    seen = [
        *step_of(0, prompt),
        returned(0, prompt),
        shown("context", 0, [0], positions=[0, 1, 2], slots=[28, 29, 30], hidden_states=[0, 1, 2]),
        drafts,
        shown("margins", 0, [0], margins=[1.0, 1.0], draft_logits=[1, 2]),
        shown("processed", 0, [0], sampled=[[6]]),
    ]
    assert judged(seen, mask_token=3, draft_shift=0) is None
    wrong = changed(seen, (0, "context", "hidden_states", 2, 1))
    assert reported(judged(wrong, mask_token=3, draft_shift=0), *WHERE) == ("hidden_states", "submit 0", 0, 2)


def tree() -> list[EngineRecord]:
    """Return two steps of a request with trees of three draft tokens and two branches in each later pass."""
    prompt, accepted = Part(0, 0, PROMPTS[0], TABLES[0], begun=PROMPTS[0]), Part(0, 3, [6, 21], TABLES[0], 1)
    # The first pass also computes the nodes that were not accepted, after the accepted path.
    nodes: dict[str, Any] = {
        "starts": [0, 4],
        "input_ids": [0] * 4,
        "positions": [3, 4, 5, 6],
        "slots": [0] * 4,
        "seq_lens": [7],
    }
    return [
        *step_of(0, prompt),
        returned(0, prompt),
        *first_pass(0, prompt),
        shown("processed", 0, [0], sampled=[[6]]),
        *step_of(1, accepted),
        returned(1, accepted),
        shown("drafting", 1, [0], index=0, hidden_states=[3, 4, 90, 91], **nodes),
        shown("hidden_states", 1, [0], draft_pass=0, hidden_states=[1003, 1004, 92, 93]),
        shown("branches", 1, [0], index=1, parents=[], hidden_states=[[1004, 1004]]),
        shown("hidden_states", 1, [0], draft_pass=1, hidden_states=[50, 51]),
        shown("branches", 1, [0], index=2, parents=[[1, 1]], hidden_states=[[51, 51]]),
        shown("hidden_states", 1, [0], draft_pass=2, hidden_states=[60, 61]),
        shown("processed", 1, [0], sampled=[[21, 9]]),
    ]


def test_states_of_an_accepted_path_and_of_parents_are_accepted() -> None:
    assert judged(tree(), keeps_draft_logits=False) is None


@pytest.mark.parametrize(
    ("change", "position"),
    [
        # The accepted path was not moved; the state of a rejected node; a state of another branch.
        ((1, "drafting", 0, "hidden_states", 1, 91), 4),
        ((1, "branches", 0, "hidden_states", 0, 1, 93), 5),
        ((1, "branches", 1, "hidden_states", 0, 0, 50), 6),
    ],
)
def test_state_of_another_tree_node_is_reported(change: tuple[Any, ...], position: int) -> None:
    found = judged(changed(tree(), change), keeps_draft_logits=False)
    assert reported(found, *WHERE) == ("hidden_states", "submit 0", 1, position)
