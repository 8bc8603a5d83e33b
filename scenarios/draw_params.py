"""Sampling parameters of generated requests, decoded from one random number; 0 stands for the defaults."""

from collections.abc import Callable
from typing import NamedTuple, get_args

from scenarios.draw import Source, below
from scenarios.sampling import BAD_WORD_LENGTH_MAX, PENALTY_STEPS, REPETITION_PENALTIES, Grammar, SamplingParams
from scenarios.spec import RATE_STEPS, EngineSpec, SamplingMethod

METHODS: tuple[SamplingMethod, ...] = get_args(SamplingMethod)
_RATES = 1 + RATE_STEPS
# Bit of a request's number that gives it a grammar.
GRAMMAR = 1 << 6


def _grammar(pick: Callable[[str, int, int], int], spec: EngineSpec) -> Grammar:
    """Draw a grammar of 2 to 5 states with up to 8 edges each; in every other grammar the last state is an end."""
    num_states = 2 + pick("states", 4, 0)
    states = []
    for state in range(num_states):
        tokens = {pick(f"edge {state}", spec.vocab_size, index) for index in range(1 + pick("edges", 8, state))}
        states.append(tuple((token, pick(f"to {state}", num_states, token)) for token in sorted(tokens)))
    if pick("free", 2, 0) == 0:
        # The first state allows every token, and some of them lead out of it.
        states[0] = tuple(
            (token, 0 if pick("off", 3, token) else pick("to 0", num_states, token)) for token in range(spec.vocab_size)
        )
    return (*states[:-1], () if pick("end", 2, 0) else states[-1])


def with_chance(params: SamplingParams, number: int, spec: EngineSpec) -> SamplingParams:
    """Return parameters with temperature, top-k, top-p and seed decoded from a number; 0 leaves them greedy."""
    if not number:
        return params

    def pick(what: str, bound: int) -> int:
        return below(bound, number, "chance", what, 0)

    return params.model_copy(
        update={
            # Logits lie below 16: at the middle temperatures the likeliest of 32 tokens has half of the probability.
            "temperature": (0.0625, 0.5, 0.7, 1.0, 1.0, 2.0, 4.0, 8.0)[pick("temperature", 8)],
            "top_k": 1 + pick("top_k", min(spec.vocab_size, 8)) if pick("has_top_k", 3) == 0 else 0,
            "top_p": (1 + pick("top_p", 99)) / 100 if pick("has_top_p", 3) == 0 else 1.0,
            "seed": pick("seed", 1 << 62) if pick("has_seed", 4) else 0,
        }
    )


def params_of(number: int, spec: EngineSpec) -> SamplingParams:
    """Return the parameters decoded from a number: its low bits choose which are set, all of it their values."""
    if not number:
        return SamplingParams()

    def pick(what: str, bound: int, index: int = 0) -> int:
        return below(bound, number, "params", what, index)

    def tokens(what: str, count: int) -> tuple[int, ...]:
        return tuple(pick(what, spec.vocab_size, index) for index in range(count))

    def word(index: int, allowed: tuple[int, ...]) -> tuple[int, ...]:
        """Draw a bad word, in one of four cases a long one; of allowed tokens, if there are any."""
        is_long = pick("is_long", 4, index) == 0
        length = 4 + pick("long", BAD_WORD_LENGTH_MAX - 3, index) if is_long else 1 + pick("length", 3, index)
        # Words of one token would ban too many of the allowed ones.
        length = max(2, length) if allowed else length
        found = tokens(f"word {index}", length)
        return tuple(allowed[token % len(allowed)] for token in found) if allowed else found

    def penalty(what: str) -> float:
        return (pick(what, 4 * PENALTY_STEPS + 1) - 2 * PENALTY_STEPS) / PENALTY_STEPS

    has_min, has_words, has_allowed, has_presence, has_frequency, has_repetition, has_grammar = (
        bool(number >> bit & 1) for bit in range(7)
    )
    # A small set of tokens repeats soon, so that bad words of several tokens occur.
    has_few = has_words and pick("few", 3) > 0
    num_allowed = 2 + pick("how few", 2) if has_few else 1 + pick("allowed", 6)
    allowed = tokens("allowed", num_allowed) if has_allowed or has_few else ()
    words = tuple(word(index, allowed) for index in range(1 + pick("words", 4 if has_few else 8)))
    return SamplingParams(
        grammar=_grammar(pick, spec) if has_grammar else (),
        min_tokens=1 + pick("min_tokens", 12) if has_min else 0,
        bad_words=words if has_words else (),
        allowed_tokens=allowed,
        presence_penalty=penalty("presence") if has_presence else 0.0,
        frequency_penalty=penalty("frequency") if has_frequency else 0.0,
        num_logprobs=pick("logprobs", 7) if pick("has_logprobs", 3) else 0,
        repetition_penalty=REPETITION_PENALTIES[pick("repetition", 7)] if has_repetition else 1.0,
    )


def method_of(number: int) -> tuple[SamplingMethod, tuple[float, ...]]:
    """Return the verification method decoded from a number, and its two rates if it is synthetic."""
    method, rates = METHODS[number % len(METHODS)], number // len(METHODS)
    given = (rates % _RATES / RATE_STEPS, rates // _RATES % _RATES / RATE_STEPS)
    return method, given if method == "synthetic" else ()


class Chance(NamedTuple):
    """Use of randomness in a trace: whether requests have a temperature, how drafts are verified and drawn.

    `method` encodes a method and its rates. `needs_guesses` asks for a drafter that predicts: drafts uploaded by script
    follow the largest logits, and so are seldom kept where tokens are drawn.
    """

    exists: bool = False
    method: int = 0
    needs_guesses: bool = False
    draws_drafts: bool = False


def chance_of(source: Source) -> Chance:
    """Draw the chance of a trace: none in two of five traces; of the others, drafts are drawn too in one of three."""
    if source("chance", 0).below(5) < 2:
        return Chance()
    digits, draws_drafts = source("method", 0), source("drafts", 0).one_in(3)
    # Only methods that weigh drafts depend on what these were drawn from.
    numbers = (1, 0, 1, 3, 1, 2, 3, 3) if draws_drafts else (0, 0, 0, 1, 1, 2, 3, 3)
    method = digits.of(numbers) + len(METHODS) * digits.below(_RATES * _RATES)
    is_weighed = method_of(method)[0] in ("standard", "block")
    return Chance(True, method, is_weighed and source("method", 1).one_in(2), draws_drafts)


class Params:
    """Encoded sampling parameters of a trace's requests: some kinds in one trace of two, grammars in one of three.

    Where drafts are drawn, one of two traces has grammars: the drafts of a request with a grammar are not drawn.
    """

    def __init__(self, source: Source, chance: Chance) -> None:
        swarm = source("params", 0)
        self._exist, self._kinds = swarm.one_in(2), swarm.below(64)
        self._has_grammars = source("grammars", 0).one_in(2 if chance.draws_drafts else 3)
        self._chance, self._source = chance, source

    def number(self, who: int) -> int:
        """Return the encoded sampling parameters of a request."""
        number = 0
        if self._exist and self._kinds:
            digits = self._source("params", 1 + who)
            number = digits.below(64) & self._kinds | 128 * digits.below(1 << 20) if digits.below(4) else 0
        grammars = self._source("grammars", 1 + who)
        if self._has_grammars and grammars.below(4):
            number |= GRAMMAR | 128 * grammars.below(1 << 20)
        return number

    def chance_number(self, who: int) -> int:
        """Return the encoded temperature, top-k, top-p and seed of a request; one of three is greedy."""
        if not self._chance.exists:
            return 0
        digits = self._source("chance", 1 + who)
        number = digits.below(1 << 20)
        return 1 + number if digits.below(3) else 0
