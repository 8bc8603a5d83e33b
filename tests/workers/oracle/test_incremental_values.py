"""Model values extended token by token equal those computed from the same tokens at once.

Verifies: values, drafter's words, logits and the end of a grammar; that drafts leave no trace; the values of a prefix.
"""

import pytest

from scenarios.drafters import Drafter
from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.oracle.incremental_values import IncrementalValues, depends_on_drafts, script_of
from workers.oracle.logits_processing import Rules, hash_of
from workers.oracle.model_values import ModelValueCache, ModelValues

PROMPT = (5, 1, 3, 1)
LENGTH = 20
# Every token leads on; after eight of them the output is over.
GRAMMAR = (*(tuple((token, state + 1) for token in range(8)) for state in range(8)), ())
DRAWN = Rules(SamplingParams(temperature=4.0, seed=3, frequency_penalty=0.5), frozenset())
ENDING = Rules(SamplingParams(temperature=2.0, grammar=GRAMMAR), frozenset())


def spec_of(drafter: Drafter) -> EngineSpec:
    return EngineSpec(vocab_size=8, drafter=drafter, depth=1, num_speculative_tokens=1)


def values(model_values: ModelValues, length: int) -> list[list[int]]:
    """Return all values below a length, and the drafter's where it knows the next token."""
    lists = (model_values.kv, model_values.attention, model_values.inputs, model_values.states, model_values.hidden)
    return [each[:length] for each in lists] + [model_values.drafter.words[: length - 1]]


@pytest.mark.parametrize("rules", [None, DRAWN, ENDING], ids=["greedy", "drawn", "ending"])
@pytest.mark.parametrize("drafter", ["eagle", "draft_model", "mtp", "dflash", "extract_hidden_states", "ngram"])
def test_incremental_tape_with_given_tokens_equals_tape(drafter: Drafter, rules: Rules | None) -> None:
    whole = ModelValues(PROMPT, spec_of(drafter), rules)
    whole.extend(LENGTH)
    incremental = IncrementalValues(PROMPT, spec_of(drafter), rules)
    for length in range(len(PROMPT), LENGTH):
        right, *_ = incremental.lines(whole.tokens[length : length + 3])
        wrong = incremental.lines([7 - whole.tokens[length], -1, 2])
        assert len(wrong) == 2
        assert right == wrong[0]
        incremental.append(whole.tokens[length], right)
        assert values(incremental, length + 1) == values(whole, length + 1)
    assert incremental.tokens == whole.tokens[:LENGTH]
    assert incremental.logits == whole.logits[: len(incremental.logits)]
    assert incremental.final == whole.final
    assert (incremental.final == len(PROMPT) + 8) == (rules is ENDING)


def test_lines_after_drafts_equal_those_of_a_tape_with_these_tokens() -> None:
    incremental = IncrementalValues(PROMPT, spec_of("eagle"), DRAWN)
    lines = incremental.lines([2, 0, 6])
    for draft, line in zip((2, 0, 6), lines, strict=False):
        assert incremental.lines([])[0] == line
        incremental.append(draft, line)
    assert incremental.lines([]) == lines[3:]
    assert incremental.logits == [hash_of(line) for line in lines[:3]]


def test_until_returns_an_independent_tape() -> None:
    incremental = IncrementalValues(PROMPT, spec_of("eagle"), DRAWN)
    for token in (2, 0, 6, 6):
        incremental.append(token, incremental.lines([])[0])
    before = values(incremental, 8)
    prefix = incremental.until(6)
    assert (prefix.tokens, prefix.logits) == (incremental.tokens[:6], incremental.logits[:2])
    prefix.append(1, prefix.lines([])[0])
    assert values(prefix, 6) == values(incremental, 6)
    assert prefix.hidden[6] != incremental.hidden[6]
    assert values(incremental, 8) == before


@pytest.mark.parametrize(
    ("method", "greedy", "drawn"),
    [("strict", False, False), ("standard", False, True), ("block", False, True), ("synthetic", True, True)],
)
def test_depends_on_drafts_for_random_acceptance(method: str, greedy: bool, drawn: bool) -> None:
    spec = EngineSpec.model_validate({"sampling": method})
    assert depends_on_drafts(SamplingParams(), spec) == greedy
    assert depends_on_drafts(SamplingParams(temperature=1.0), spec) == drawn


@pytest.mark.parametrize("method", ["strict", "standard", "block", "synthetic"])
def test_script_uses_noise_only_if_tokens_are_independent_of_drafts(method: str) -> None:
    spec = EngineSpec.model_validate({"sampling": method, "vocab_size": 8})
    params = [DRAWN.params.model_copy(update={"seed": seed}) for seed in (3, 4)]
    greedy = DRAWN.params.model_copy(update={"temperature": 0.0})
    one, other, likeliest = (
        script_of(
            Submit(tick=0, request="a", prompt=PROMPT, max_tokens=LENGTH, accept="110", params=each),
            spec,
            ModelValueCache(),
        )
        for each in (*params, greedy)
    )
    assert (one == other == likeliest) == (method != "strict")
    assert one != other or method != "strict"
