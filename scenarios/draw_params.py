"""Sampling parameters of generated requests, decoded from one random number; 0 stands for the defaults."""

from typing import NamedTuple, get_args

from scenarios.draw import Source
from scenarios.sampling import GRAMMAR, PARAMS, Number, SamplingParams
from scenarios.spec import RATE_STEPS, EngineSpec, SamplingMethod

METHODS: tuple[SamplingMethod, ...] = get_args(SamplingMethod)
_RATES = 1 + RATE_STEPS


def params_of(number: int, spec: EngineSpec) -> SamplingParams:
    """Return the parameters decoded from a number: its low bits choose which are set, all of it their values."""
    return SamplingParams.model_validate(_decoded(number, "params", spec)) if number else SamplingParams()


def with_chance(params: SamplingParams, number: int, spec: EngineSpec) -> SamplingParams:
    """Return parameters with temperature, top-k, top-p and seed decoded from a number; 0 leaves them greedy."""
    return params.model_copy(update=_decoded(number, "chance", spec)) if number else params


def _decoded(number: int, site: str, spec: EngineSpec) -> dict[str, object]:
    """Return the values of the parameters that are decoded from a number of a site."""
    drawn = {name: each.drawn for name, each in PARAMS.items() if each.site == site and each.drawn is not None}
    return {name: draw(Number(number, site, spec)) for name, draw in drawn.items()}


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

    def number(self, request_index: int) -> int:
        """Return the encoded sampling parameters of a request."""
        number = 0
        if self._exist and self._kinds:
            digits = self._source("params", 1 + request_index)
            number = digits.below(64) & self._kinds | 128 * digits.below(1 << 20) if digits.below(4) else 0
        grammars = self._source("grammars", 1 + request_index)
        if self._has_grammars and grammars.below(4):
            number |= GRAMMAR | 128 * grammars.below(1 << 20)
        return number

    def chance_number(self, request_index: int) -> int:
        """Return the encoded temperature, top-k, top-p and seed of a request; one of three is greedy."""
        if not self._chance.exists:
            return 0
        digits = self._source("chance", 1 + request_index)
        number = digits.below(1 << 20)
        return 1 + number if digits.below(3) else 0
