"""Sampling parameters out of one number: 0 is none of them."""

from collections.abc import Callable

from scenarios.draw import below
from scenarios.sampling import PENALTY_STEPS, REPETITION_PENALTIES, Grammar, SamplingParams
from scenarios.spec import EngineSpec


def _grammar(pick: Callable[[str, int, int], int], spec: EngineSpec) -> Grammar:
    """Return a few states with a few edges each; in every other grammar the last state is an end."""
    num_states = 2 + pick("states", 4, 0)
    states = []
    for state in range(num_states):
        tokens = {pick(f"edge {state}", spec.vocab_size, index) for index in range(1 + pick("edges", 8, state))}
        states.append(tuple((token, pick(f"to {state}", num_states, token)) for token in sorted(tokens)))
    return (*states[:-1], () if pick("end", 2, 0) else states[-1])


def params_of(number: int, spec: EngineSpec) -> SamplingParams:
    """Return the parameters a number stands for: its low bits say which there are, all of it what they are."""
    if not number:
        return SamplingParams()

    def pick(what: str, bound: int, index: int = 0) -> int:
        return below(bound, number, "params", what, index)

    def tokens(what: str, count: int) -> tuple[int, ...]:
        return tuple(pick(what, spec.vocab_size, index) for index in range(count))

    def penalty(what: str) -> float:
        return (pick(what, 4 * PENALTY_STEPS + 1) - 2 * PENALTY_STEPS) / PENALTY_STEPS

    has_min, has_words, has_allowed, has_presence, has_frequency, has_repetition, has_grammar = (
        bool(number >> bit & 1) for bit in range(7)
    )
    words = tuple(tokens(f"word {index}", 1 + pick("length", 3, index)) for index in range(1 + pick("words", 8)))
    # Few tokens repeat themselves soon, so that bad words of several tokens are met.
    allowed = tokens("allowed", 1 + pick("allowed", 6))
    return SamplingParams(
        grammar=_grammar(pick, spec) if has_grammar else (),
        min_tokens=1 + pick("min_tokens", 12) if has_min else 0,
        bad_words=words if has_words else (),
        allowed_tokens=allowed if has_allowed else (),
        presence_penalty=penalty("presence") if has_presence else 0.0,
        frequency_penalty=penalty("frequency") if has_frequency else 0.0,
        num_logprobs=pick("logprobs", 7) if pick("has_logprobs", 3) else 0,
        repetition_penalty=REPETITION_PENALTIES[pick("repetition", 7)] if has_repetition else 1.0,
    )
