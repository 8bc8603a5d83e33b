"""Sampling parameters of generated requests: made from one number, which comes from a seed; 0 is none of them."""

from collections.abc import Callable
from typing import get_args

from scenarios.draw import Digits, below
from scenarios.sampling import PENALTY_STEPS, REPETITION_PENALTIES, Grammar, SamplingParams
from scenarios.spec import RATE_STEPS, EngineSpec, SamplingMethod

METHODS: tuple[SamplingMethod, ...] = get_args(SamplingMethod)
_RATES = 1 + RATE_STEPS


def _grammar(pick: Callable[[str, int, int], int], spec: EngineSpec) -> Grammar:
    """Return a few states with a few edges each; in every other grammar the last state is an end."""
    num_states = 2 + pick("states", 4, 0)
    states = []
    for state in range(num_states):
        tokens = {pick(f"edge {state}", spec.vocab_size, index) for index in range(1 + pick("edges", 8, state))}
        states.append(tuple((token, pick(f"to {state}", num_states, token)) for token in sorted(tokens)))
    if pick("free", 3, 0) == 0:
        # It begins in the middle of an output: anything may come until the first of its tokens does.
        begun = dict(states[0])
        states[0] = tuple((token, begun.get(token, 0)) for token in range(spec.vocab_size))
    return (*states[:-1], () if pick("end", 2, 0) else states[-1])


def with_chance(params: SamplingParams, number: int, spec: EngineSpec) -> SamplingParams:
    """Return parameters with those of drawing tokens by chance that a number stands for: 0 is none of them."""
    if not number:
        return params

    def pick(what: str, bound: int) -> int:
        return below(bound, number, "chance", what, 0)

    return params.model_copy(
        update={
            # Logits lie below 16: in the middle of these the likeliest of 32 tokens has half of all probability.
            "temperature": (0.0625, 0.5, 0.7, 1.0, 1.0, 2.0, 4.0, 8.0)[pick("temperature", 8)],
            "top_k": 1 + pick("top_k", min(spec.vocab_size, 8)) if pick("has_top_k", 3) == 0 else 0,
            "top_p": (1 + pick("top_p", 99)) / 100 if pick("has_top_p", 3) == 0 else 1.0,
            "seed": pick("seed", 1 << 62) if pick("has_seed", 4) else 0,
        }
    )


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


def method_of(number: int) -> tuple[SamplingMethod, tuple[float, ...]]:
    """Return the method of verification that a number stands for, and two rates where it has some."""
    method, rates = METHODS[number % len(METHODS)], number // len(METHODS)
    given = (rates % _RATES / RATE_STEPS, rates // _RATES % _RATES / RATE_STEPS)
    return method, given if method == "synthetic" else ()


def random_params(seed: int, who: int) -> int:
    """Return the number of a request's sampling parameters: of some kinds, a grammar in one trace of four, or none."""
    swarm, digits = Digits(seed, "params", 0), Digits(seed, "params", 1 + who)
    grammars = Digits(seed, "grammars", 1 + who)
    has_params, kinds = swarm.below(3) == 0, swarm.below(64)
    number = digits.below(64) & kinds | 128 * digits.below(1 << 20) if has_params and kinds and digits.below(4) else 0
    if Digits(seed, "grammars", 0).below(4) == 0 and grammars.below(4):
        number |= 64 | 128 * grammars.below(1 << 20)
    return number


def has_chance(seed: int) -> bool:
    """Tell whether a trace has requests whose tokens are drawn: one in three has."""
    return Digits(seed, "chance", 0).below(3) == 0


def random_chance(seed: int, who: int) -> int:
    """Return the number of how a request's tokens are drawn; one of three is greedy."""
    digits = Digits(seed, "chance", 1 + who)
    return 1 + digits.below(1 << 20) if has_chance(seed) and digits.below(3) else 0


def random_method(seed: int) -> int:
    """Return the number of a trace's method of verification, and of rates."""
    digits = Digits(seed, "method", 0)
    return digits.of((0, 0, 0, 1, 1, 2, 3, 3)) + len(METHODS) * digits.below(_RATES * _RATES) if has_chance(seed) else 0


def needs_guesses(seed: int) -> bool:
    """Tell whether a drafter has to guess, for drafts to be kept now and then: uploaded ones know another output."""
    method, _ = method_of(random_method(seed))
    return method in ("standard", "block") and Digits(seed, "method", 1).below(2) == 0


def draws_drafts(seed: int) -> bool:
    """Tell whether drafts are drawn in a trace: in one of four with requests whose tokens are."""
    return has_chance(seed) and Digits(seed, "drafts", 0).below(4) == 0
