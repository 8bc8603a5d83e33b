"""Problems of traces that no engine can run, and the expansion of generated prompts and acceptance scripts."""

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from scenarios.events import AcceptRate, PromptDraw, Schedule, Submit
from scenarios.generation.strategies import traces
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems


def submit(**changes: object) -> Submit:
    return Submit.model_validate({"tick": 0, "request": "a", "prompt": (1, 2), "max_tokens": 3, **changes})


def unchecked(**parts: object) -> Trace:
    return Trace.model_validate({"events": (), **parts}, context={"problems_listed": True})


@pytest.mark.parametrize(
    ("parts", "path", "words"),
    [
        ({"events": (submit(prompt=(1, 32)),)}, ("events", 0, "prompt", 1), "token id 32"),
        ({"events": (submit(stop=(40,)),)}, ("events", 0, "stop", 0), "vocab_size - 1 = 31"),
        ({"events": (submit(prompt={"tokens": 128}),)}, ("events", 0, "prompt"), "max_model_len = 128 allows 127"),
        (
            {"spec": EngineSpec(num_blocks=3), "events": (submit(),)},
            ("events", 0, "request"),
            "can never fit: it needs 4 blocks, num_blocks is 3",
        ),
        (
            {"spec": EngineSpec(max_num_batched_tokens=3)},
            ("spec", "max_num_batched_tokens"),
            "one decode needs 1 + K = 4",
        ),
        ({"schedule": Schedule(order=("host", "host"))}, ("schedule", "order"), "must name each of"),
        ({"expect": {"premption": 1}}, ("expect", "premption"), "did you mean preemption?"),
    ],
)
def test_impossible_trace_has_one_problem_with_path_and_message(
    parts: dict[str, object], path: tuple[str | int, ...], words: str
) -> None:
    (problem,) = problems(unchecked(**parts))
    assert problem.path == path
    assert words in problem.message
    with pytest.raises(ValidationError, match=r".*"):
        Trace.model_validate({"events": (), **parts})


@pytest.mark.parametrize("number", [True, 1.0, "1", None, -1, 1 << 63])
def test_number_must_be_integer_within_bounds(number: object) -> None:
    with pytest.raises(ValidationError):
        unchecked(seed=number)


def test_explicit_trace_has_no_generators_and_is_idempotent() -> None:
    trace = Trace(events=(submit(prompt=PromptDraw(tokens=9), accept=AcceptRate(rate=0.5)),), seed=7)
    (event,) = trace.explicit().events
    assert isinstance(event, Submit)
    assert isinstance(event.prompt, tuple)
    assert len(event.prompt) == 9
    assert isinstance(event.accept, str)
    assert set(event.accept) == {"0", "1"}
    assert trace.explicit().explicit() == trace.explicit()


def test_generated_prompts_share_exactly_their_common_tokens() -> None:
    def tokens_of(request: str, **draw: int) -> tuple[int, ...]:
        spec = EngineSpec(vocab_size=65536)
        event = submit(request=request, prompt=PromptDraw(tokens=9, **draw))
        (event,) = Trace(events=(event,), spec=spec, seed=7).explicit().submits()
        assert isinstance(event.prompt, tuple)
        return event.prompt

    whole = tokens_of("a", common=9)
    for common, own, alike in (
        (0, 0, ()),
        (4, 0, range(4)),
        (3, 2, (0, 1, 2, 5, 6, 7, 8)),
        (0, 8, (8,)),
        (9, 4, range(9)),
    ):
        one, other = (tokens_of(request, common=common, own=own) for request in ("a", "b"))
        same = {at for at in range(9) if one[at] == other[at]}
        assert same == {at for at in range(9) if one[at] == whole[at]} == set(alike)
    assert tokens_of("a", common=4, own=100) == tokens_of("a", common=4)


@settings(max_examples=80)
@given(traces())
def test_removed_request_does_not_change_other_explicit_events(trace: Trace) -> None:
    explicit = trace.explicit().events
    assert len(explicit) == len(trace.events)
    for index in range(len(explicit)):
        fewer = trace.model_copy(update={"events": trace.events[:index] + trace.events[index + 1 :]})
        assert fewer.explicit().events == explicit[:index] + explicit[index + 1 :]


def test_accept_bits_follow_their_rate_and_maximum_length() -> None:
    for rate, wanted in ((0.0, {"0"}), (1.0, {"1"})):
        (event,) = Trace(events=(submit(accept=AcceptRate(rate=rate), max_tokens=1_000_000),)).explicit().events
        assert isinstance(event, Submit)
        assert isinstance(event.accept, str)
        assert set(event.accept) == wanted
        assert Submit.model_validate(event.model_dump()) == event
