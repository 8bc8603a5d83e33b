"""Grammars that end by stop tokens alone: detection, and changes to the others."""

import pytest

from scenarios.draw import below
from scenarios.draw_params import params_of
from scenarios.events import PromptDraw, Submit
from scenarios.sampling import GRAMMAR, Grammar, SamplingParams
from scenarios.spec import EngineSpec
from workers.targets.child.grammar_ends import nonstop_end_of, state_without_tokens, with_stop_ends

SPEC = EngineSpec()


def submit(grammar: Grammar, stop: tuple[int, ...] = (), **params: object) -> Submit:
    asked = SamplingParams(grammar=grammar, **params)  # type: ignore[arg-type]
    return Submit(tick=0, request="a", prompt=PromptDraw(tokens=1), max_tokens=9, stop=stop, params=asked)


MISFITS = {
    "state 0 ends without a stop token of the request": submit((((1, 1),), ()), (2,)),
    "state 1 continues after a stop token of the request": submit((((1, 1),), ((2, 0),)), (2,)),
    "state 0 ends by some stop tokens of the request and not by others": submit((((1, 1), (4, 0)), ()), (1, 3)),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_grammar_that_ends_otherwise_is_described_and_changed(misfit: str) -> None:
    assert nonstop_end_of(MISFITS[misfit]) == misfit
    changed = with_stop_ends(MISFITS[misfit], SPEC.vocab_size)
    assert nonstop_end_of(changed) is None
    assert with_stop_ends(changed, SPEC.vocab_size) == changed


def test_grammar_without_ends_or_with_stop_ends_is_unchanged() -> None:
    for event in (submit((((1, 0),),), (2,)), submit((((1, 0), (2, 1), (3, 1)), ()), (2, 3))):
        assert with_stop_ends(event, SPEC.vocab_size) is event


@pytest.mark.parametrize("number", range(40))
def test_outputs_of_a_generated_grammar_fit_the_changed_grammar(number: int) -> None:
    stop = (below(SPEC.vocab_size, number, "stop", "", 0),) if number % 2 else ()
    event = submit((), stop).model_copy(update={"params": params_of(GRAMMAR | 128 * number, SPEC)})
    before = event.params.grammar
    changed = with_stop_ends(event, SPEC.vocab_size)
    after = changed.params.grammar
    assert nonstop_end_of(changed) is None
    state = 0
    for step in range(20):
        # States keep their numbers.
        continuing = {token: to for token, to in before[state] if token not in changed.stop}
        assert continuing.items() <= {tuple(edge) for edge in after[state]}
        ends = {token for token, to in after[state] if not after[to]}
        has_end = not before[state] or len(continuing) < len(before[state])
        assert ends == (set(changed.stop) if has_end else set())
        if not continuing:
            break
        state = continuing[sorted(continuing)[below(len(continuing), number, "walk", "", step)]]


def test_state_with_all_tokens_banned_is_named() -> None:
    grammar: Grammar = (((1, 1), (2, 0)), ((3, 2), (4, 0)), ())
    assert state_without_tokens(submit(grammar, (3,))) is None
    assert state_without_tokens(submit(grammar, (3,), allowed_tokens=(1, 2, 3))) is None
    assert state_without_tokens(submit(grammar, (3,), allowed_tokens=(1, 2))) == "state 1"
    assert state_without_tokens(submit(grammar, (3,), allowed_tokens=(1, 2, 3), min_tokens=1)) == "state 1"
    assert state_without_tokens(submit(grammar, (3,), bad_words=((5, 1), (2,)))) == "state 0"
