"""Known bugs of SGLang are recognised by their mechanism, and by nothing that is near it."""

from collections.abc import Sequence
from typing import Any

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, fact
from workers.record.observation import Observation
from workers.targets.registry import kind_of
from workers.targets.target import SGLANG

KIND = kind_of(SGLANG)
PROMPT, OUTPUT = (5, 9, 3), [7, 8, 9, 11]
PENALTY: dict[str, Any] = {"presence_penalty": 1.0}
BEHIND, FORGOTTEN = "sglang_penalties_one_behind", "sglang_penalties_forgotten"


def steps_of(output: Sequence[int], begins: Sequence[int]) -> list[Observation]:
    """Return what is seen of a request that begins at the given places of its output."""
    steps = []
    for step, token in enumerate(output):
        begun = [[0, [*PROMPT, *output[:step]]]] if step in begins else []
        steps += [
            Observation("scheduled", step, (0,), {"begun": begun}),
            Observation("processed", step, (0,), {"sampled": [[token]]}),
        ]
    return steps


def named(
    expected: int | Fact,
    actual: int | Fact,
    position: int = 3,
    depth: int = 2,
    begins: Sequence[int] = (0,),
    stop: tuple[int, ...] = (),
    **params: Any,
) -> str:
    """Return the known bug that a difference behind tokens 7, 8 and 9 is taken for, of prompt 5, 9 and 3."""
    submit = Submit(tick=0, request="a", prompt=PROMPT, max_tokens=9, stop=stop, params=SamplingParams(**params))
    spec = EngineSpec(layers="attention", sampling="standard", num_speculative_tokens=0, depth=depth)
    found = Difference(
        plane="tokens", variable="tokens", request="a", step=9, position=position, expected=expected, actual=actual
    )
    return KIND.known(found, Trace(spec=spec, events=(submit,)), steps_of(OUTPUT, begins))


@pytest.mark.parametrize(("expected", "actual"), [(20, 9), (9, 20), (3, 20), (20, 3)])
def test_a_penalty_one_step_late_is_known_by_the_last_token_or_the_prompts_last_one(expected: int, actual: int) -> None:
    assert named(expected, actual, **PENALTY) == BEHIND
    # Not without the overlap schedule, nor without a penalty.
    assert named(expected, actual, depth=1, **PENALTY) == ""
    assert named(expected, actual) == ""


@pytest.mark.parametrize(
    ("expected", "actual", "position"),
    [
        # Neither tokens that count alike in both runs, nor the first token, nor an output that is too short.
        (20, 21, 3),
        (8, 20, 3),
        (3, 20, 0),
        (fact("tokens", count=9), fact("tokens", count=3), 3),
    ],
)
def test_what_no_late_penalty_can_do_is_new(expected: int | Fact, actual: int | Fact, position: int) -> None:
    assert named(expected, actual, position, **PENALTY) == ""


def test_a_token_that_is_drawn_behind_a_late_penalty_may_be_any() -> None:
    assert named(20, 21, temperature=1.0, **PENALTY) == BEHIND
    assert named(20, 21, 0, temperature=1.0, **PENALTY) == ""


@pytest.mark.parametrize(("expected", "actual"), [(20, 7), (8, 20)])
def test_a_penalty_forgotten_is_known_by_a_token_of_the_output_of_a_request_that_began_again(
    expected: int, actual: int
) -> None:
    assert named(expected, actual, depth=1, begins=(0, 2), **PENALTY) == FORGOTTEN
    assert named(20, 21, depth=1, begins=(0, 2), **PENALTY) == ""
    assert named(expected, actual, depth=1, **PENALTY) == ""


def test_a_minimum_that_begins_anew_is_known_by_a_stop_token_that_was_due_within_it() -> None:
    assert named(4, 20, begins=(0, 2), stop=(4,), min_tokens=2) == FORGOTTEN
    # Neither before the minimum, nor behind it, nor of a token that does not stop.
    assert named(4, 20, begins=(0, 2), stop=(4,), min_tokens=4) == ""
    assert named(4, 20, begins=(0, 1), stop=(4,), min_tokens=2) == ""
    assert named(6, 20, begins=(0, 2), stop=(4,), min_tokens=2) == ""
    assert named(4, 20, stop=(4,), min_tokens=2) == ""


@pytest.mark.parametrize(
    ("position", "expected", "begins", "name"),
    [
        (4, 9, (0, 3), "sglang_chunk_end_behind_prompt"),
        # Neither within the prompt, nor where nothing is known, nor another token, nor of a request that began once.
        (1, 3, (0, 3), ""),
        (5, 11, (0, 3), ""),
        (4, 8, (0, 3), ""),
        (4, 9, (0,), ""),
    ],
)
def test_a_sample_behind_a_chunk_is_known_where_the_next_token_is_one_of_the_output_so_far(
    position: int, expected: int, begins: Sequence[int], name: str
) -> None:
    submit = Submit(tick=0, request="a", prompt=PROMPT, max_tokens=9)
    found = Difference(
        plane="drafts",
        variable="draft_input_ids",
        request="submit 0",
        step=9,
        position=position,
        expected=expected,
        actual=20,
    )
    assert KIND.known(found, Trace(spec=EngineSpec(), events=(submit,)), steps_of(OUTPUT, begins)) == name


@pytest.mark.parametrize(
    ("computed", "drafts", "mixed", "grammar", "variable", "name"),
    [
        ((3, 3), 0, True, True, "grammar", "sglang_mixed_grammars"),
        ((3, 3), 0, True, True, "finish_reason", "sglang_mixed_grammars"),
        # Neither of a decode that is verified, nor of the end of a prompt, nor without chunks that take decodes along.
        ((3, 3), 3, True, True, "grammar", ""),
        ((0, 2), 0, True, True, "grammar", ""),
        ((3, 3), 0, False, True, "grammar", ""),
        ((3, 3), 0, True, False, "finish_reason", ""),
        ((3, 3), 0, True, True, "kv", ""),
        # It did not run in the step before.
        ((None, 3), 0, True, True, "grammar", ""),
    ],
)
def test_a_stale_grammar_is_known_of_a_decode_that_a_prompt_takes_along(
    computed: Sequence[int | None], drafts: int, mixed: bool, grammar: bool, variable: str, name: str
) -> None:
    params = SamplingParams(grammar=(((3, 0),),)) if grammar else SamplingParams()
    submits = (Submit(tick=0, request="a", prompt=PROMPT, max_tokens=9, params=params),) * 2
    steps = [
        Observation(
            "scheduled",
            step,
            (1, 0) if number is not None else (1,),
            {
                "begun": [],
                "scheduled_computed": [0] if number is None else [0, number],
                "planned_drafts": [0] if number is None else [0, drafts],
            },
        )
        for step, number in enumerate(computed)
    ]
    found = Difference(
        plane="contracts",
        variable=variable,
        request="a",
        step=9,
        position=1,
        expected=fact("an_edge", count=1, state=1),
        actual=fact("token", token=9),
    )
    trace = Trace(spec=EngineSpec(mixed_chunks=mixed), events=submits[:1])
    assert KIND.known(found, trace.model_copy(update={"events": submits}), steps) == name


# Token 7 until it ends.
LOOPING = SamplingParams(grammar=(((7, 0), (31, 1)), ()))


@pytest.mark.parametrize(
    ("sampled", "drafts", "known"),
    [
        ([[31], [9]], [0, 2], True),
        # A request that decodes beside a prompt, or begins again.
        ([[7], [31], [9]], [0, 0, 2], True),
        # Neither within a run of drafts, nor before the end, nor where a token is not allowed.
        ([[7], [31, 9]], [0, 2], False),
        ([[7], [7, 7]], [0, 2], False),
        ([[9], [31]], [0, 0], False),
    ],
)
def test_a_grammar_that_goes_on_is_known_where_it_ended_in_a_step_without_drafts(
    sampled: list[list[int]], drafts: list[int], known: bool
) -> None:
    name = "sglang_grammar_ends_late" if known else ""
    found = Difference(
        plane="contracts",
        variable="grammar",
        request="a",
        step=9,
        position=1,
        expected=fact("an_edge", count=0, state=1),
        actual=fact("token", token=9),
    )
    assert named_of_grammar(found, sampled, drafts) == name
    # Neither another request, nor what is no token, nor without drafts, where it has its stop token.
    assert named_of_grammar(found.model_copy(update={"request": "b"}), sampled, drafts) == ""
    assert named_of_grammar(found.model_copy(update={"variable": "kv"}), sampled, drafts) == ""
    assert named_of_grammar(found, sampled, drafts, num_speculative_tokens=0) == ""


def test_a_grammar_that_ends_with_the_last_token_allowed_is_known_by_its_reason() -> None:
    found = Difference(
        plane="contracts",
        variable="finish_reason",
        request="a",
        step=9,
        position=3,
        expected=fact("reason", reason="stop"),
        actual=fact("reason", reason="length"),
    )
    sampled, drafts = [[7], [7, 7, 31]], [0, 2]
    assert named_of_grammar(found, sampled, drafts, max_tokens=4) == "sglang_grammar_ends_late"
    # Neither before the length, nor by another reason, nor without a grammar.
    assert named_of_grammar(found, sampled, drafts, max_tokens=5) == ""
    aborted = found.model_copy(update={"actual": fact("reason", reason="abort")})
    assert named_of_grammar(aborted, sampled, drafts, max_tokens=4) == ""
    assert named_of_grammar(found, sampled, drafts, max_tokens=4, params=SamplingParams()) == ""


def named_of_grammar(
    found: Difference,
    sampled: list[list[int]],
    drafts: list[int],
    *,
    num_speculative_tokens: int = 2,
    max_tokens: int = 9,
    params: SamplingParams = LOOPING,
) -> str:
    """Return the known bug that a difference is taken for, of a request that was sampled so beside so many drafts."""
    submit = Submit(tick=0, request="a", prompt=PROMPT, max_tokens=max_tokens, stop=(31,), params=params)
    steps = []
    for step, (tokens, count) in enumerate(zip(sampled, drafts, strict=True)):
        plan = {"begun": [], "scheduled_computed": [0], "planned_drafts": [count]}
        steps += [
            Observation("scheduled", step, (0,), plan),
            Observation("processed", step, (0,), {"sampled": [tokens]}),
        ]
    spec = EngineSpec(num_speculative_tokens=num_speculative_tokens)
    return KIND.known(found, Trace(spec=spec, events=(submit,)), steps)


@pytest.mark.parametrize(
    ("vocab_size", "drafts", "known"), [(97, 2, "sglang_grammar_rows_of_views"), (97, 0, ""), (130, 2, "")]
)
def test_mask_of_a_view_is_known_where_logits_have_two_rows(vocab_size: int, drafts: int, known: str) -> None:
    params = SamplingParams(grammar=(((20, 1),), ()))
    submit = Submit(tick=0, request="a", prompt=PROMPT, max_tokens=9, stop=(vocab_size - 1,), params=params)
    sizes: dict[str, Any] = {"vocab_size": vocab_size, "num_speculative_tokens": drafts}
    spec = EngineSpec(layers="attention", sampling="standard", **sizes)
    found = Difference(plane="contracts", variable="grammar", request="a", step=2, position=0, expected=20, actual=76)
    assert KIND.known(found, Trace(spec=spec, events=(submit,)), ()) == known
