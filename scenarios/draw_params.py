"""Sampling parameters of random requests, decoded from random integers (0: the defaults)."""

from typing import NamedTuple, get_args

from scenarios.draw import Source
from scenarios.sampling import GRAMMAR, PARAMS, Number, SamplingParams
from scenarios.spec import RATE_STEPS, EngineSpec, SamplingMethod

METHODS: tuple[SamplingMethod, ...] = get_args(SamplingMethod)
_RATES = 1 + RATE_STEPS


def params_of(number: int, spec: EngineSpec) -> SamplingParams:
    """Return the sampling parameters that a number encodes.

    Its low bits select the parameters; the whole number gives their values.
    """
    return SamplingParams.model_validate(_decode_group(number, "params", spec)) if number else SamplingParams()


def with_sampling(params: SamplingParams, number: int, spec: EngineSpec) -> SamplingParams:
    """Return the parameters with temperature, top-k, top-p and seed decoded from a number."""
    return params.model_copy(update=_decode_group(number, "chance", spec)) if number else params


def _decode_group(number: int, site: str, spec: EngineSpec) -> dict[str, object]:
    """Return the sampling parameters of one group ("params", "chance"), decoded from a number."""
    drawn = {name: each.drawn for name, each in PARAMS.items() if each.site == site and each.drawn is not None}
    return {name: draw(Number(number, site, spec)) for name, draw in drawn.items()}


def method_of(number: int) -> tuple[SamplingMethod, tuple[float, ...]]:
    """Decode how draft tokens are verified and, if this is synthetic, two acceptance rates."""
    method, rates = METHODS[number % len(METHODS)], number // len(METHODS)
    given = (rates % _RATES / RATE_STEPS, rates // _RATES % _RATES / RATE_STEPS)
    return method, given if method == "synthetic" else ()


class SamplingMode(NamedTuple):
    """What a trace samples at random: output tokens, draft verification, draft tokens.

    `method` encodes a verification method and its rates. `needs_guesses` requires a drafter that predicts tokens:
    scripted draft tokens follow the largest logits, and sampled requests seldom accept them.
    """

    exists: bool = False
    method: int = 0
    needs_guesses: bool = False
    draws_drafts: bool = False


def sampling_mode_of(source: Source) -> SamplingMode:
    """Generate a trace's sampling mode: greedy in 2 of 5 traces, otherwise sampled.

    In 1 of 3 sampled traces the draft tokens are sampled, too.
    """
    if source("chance", 0).below(5) < 2:
        return SamplingMode()
    digits, draws_drafts = source("method", 0), source("drafts", 0).one_in(3)
    # Only "standard" and "block" verification use the distribution that a draft token was sampled from.
    numbers = (1, 0, 1, 3, 1, 2, 3, 3) if draws_drafts else (0, 0, 0, 1, 1, 2, 3, 3)
    method = digits.of(numbers) + len(METHODS) * digits.below(_RATES * _RATES)
    is_weighed = method_of(method)[0] in ("standard", "block")
    return SamplingMode(True, method, is_weighed and source("method", 1).one_in(2), draws_drafts)


class Params:
    """Generates, per request of a trace, the numbers that encode sampling parameters.

    1 of 2 traces has parameters that change logits, 1 of 3 has grammars.
    If draft tokens are sampled, 1 of 2 traces has grammars: a request with a grammar gets greedy draft tokens.
    """

    def __init__(self, source: Source, mode: SamplingMode) -> None:
        swarm = source("params", 0)
        self._exist, self._kinds = swarm.one_in(2), swarm.below(64)
        self._has_grammars = source("grammars", 0).one_in(2 if mode.draws_drafts else 3)
        self._mode, self._source = mode, source

    def number(self, request_index: int) -> int:
        """Return the number that encodes a request's logits parameters and grammar."""
        number = 0
        if self._exist and self._kinds:
            digits = self._source("params", 1 + request_index)
            number = digits.below(64) & self._kinds | 128 * digits.below(1 << 20) if digits.below(4) else 0
        grammars = self._source("grammars", 1 + request_index)
        if self._has_grammars and grammars.below(4):
            number |= GRAMMAR | 128 * grammars.below(1 << 20)
        return number

    def sampling_number(self, request_index: int) -> int:
        """Return the number that encodes a request's temperature, top-k, top-p and seed.

        1 of 3 requests is greedy, and each request of a trace without random sampling.
        """
        if not self._mode.exists:
            return 0
        digits = self._source("chance", 1 + request_index)
        number = digits.below(1 << 20)
        return 1 + number if digits.below(3) else 0
