"""How the tokens of a request at a temperature follow from its target distributions and its noise, number by number.

In float64, one token at a time, for drafts that their drafter is certain of. A token is selected by its block of the
vocabulary, its tile in that, and itself, each by its own number of noise (docs/decisions/0003).

Where float32 could decide otherwise a decision is ambiguous. UNIT is the largest relative error of one rounding.
A weight exp(-x) is off by at most (8 x + 16) UNIT of itself: x by 8, of log2(e), the temperature, a quotient (4 on a
GPU), a difference and a product; the exponential by 8, and as much once more where one of its block is multiplied by
that of the token. A sum of n terms is, in whatever order, off by at most n UNIT of itself; a term of 0 is none.
Whatever underflows is below TINY.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isnan
from struct import pack, unpack

from scenarios.draw import philox4x32
from scenarios.sampling import SamplingParams
from scenarios.spec import SamplingMethod
from workers.choice import ONE

UNIT = 2.0**-24
TINY = 2.0**-126
ACCEPT_STREAM, SELECT_STREAM = 1, 2
TILE_SIZE = 128
BLOCK_SIZE_MIN, BLOCKS_MAX = 4096, 32


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, or None where there is no distribution, and whether float32 could choose another."""

    token: int | None
    is_ambiguous: bool


@dataclass(frozen=True, slots=True)
class Verified:
    """The tokens of a row, kept drafts first, and whether float32 could decide otherwise anywhere in it."""

    tokens: tuple[int, ...]
    is_ambiguous: bool


@dataclass(frozen=True, slots=True)
class Mass:
    """A weight, or a sum of weights, and how far off float32 may be. Where it is exactly 0 it is 0 there too."""

    value: float
    error: float


NOTHING = Mass(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Target:
    """The weights of the tokens under a request's parameters, relative to the largest.

    It is ambiguous if float32 could draw the border of top-p elsewhere.
    """

    masses: tuple[Mass, ...]
    is_ambiguous: bool

    def without(self, token: int) -> tuple[Mass, ...]:
        """Return the weights with a token ruled out."""
        return (*self.masses[:token], NOTHING, *self.masses[token + 1 :])

    def probabilities(self) -> list[float]:
        """Return the target distribution."""
        total = sum(mass.value for mass in self.masses)
        return [mass.value / total for mass in self.masses]


def float32(value: float) -> float:
    """Return the nearest number of single precision."""
    rounded: float = unpack("f", pack("f", value))[0]
    return rounded


def noise(params: SamplingParams, position: int, stream: int) -> list[float]:
    """Return the four numbers in [0, 1) that a stream holds for a position."""
    counter = (position & 0xFFFFFFFF, position >> 32, stream, 0)
    words = philox4x32(counter, (params.seed & 0xFFFFFFFF, params.seed >> 32))
    return [(word >> 8) * 2.0**-24 for word in words]


def total(masses: Sequence[Mass]) -> Mass:
    """Return the sum of masses."""
    terms = [mass for mass in masses if mass.value > 0]
    value = sum(mass.value for mass in terms)
    return Mass(value, sum(mass.error for mass in terms) + len(terms) * UNIT * value)


def pick(masses: Sequence[Mass], number: float) -> tuple[int, bool]:
    """Return the index in which the running sum passes the number times the total, and if it may be another.

    Errors of the masses move the place where two of them meet by at most their sum; and both the running sum and the
    total are off by n UNIT there. Masses of 0 meet nobody.
    """
    terms = [index for index, mass in enumerate(masses) if mass.value > 0]
    wanted = number * sum(masses[index].value for index in terms)
    error = sum(masses[index].error for index in terms)
    picked, is_ambiguous, running = terms[-1], False, 0.0
    for index in terms[:-1]:
        running += masses[index].value
        is_ambiguous |= abs(running - wanted) <= error + 2 * len(terms) * UNIT * running
        if running > wanted:
            picked = min(picked, index)
    return picked, is_ambiguous


def target_of(logits: Sequence[float], params: SamplingParams) -> Target | None:
    """Return the target distribution of processed logits, or None if there is none: NaN, inf, or nothing but -inf.

    Logits are in units of 1 / ONE. At temperature 0 the lowest of the largest logits has all of it.
    """
    largest = max(logits)
    if any(isnan(logit) for logit in logits) or largest in (inf, -inf):
        return None
    if params.temperature == 0:
        best = list(logits).index(largest)
        return Target(tuple(Mass(float(token == best), 0.0) for token in range(len(logits))), is_ambiguous=False)
    floor = sorted(logits)[-params.top_k] if 0 < params.top_k < len(logits) else -inf
    masses = [_weight(logit, floor, largest, params.temperature) for logit in logits]
    least, is_ambiguous = float32(params.top_p) * total(masses).value, False
    if float32(params.top_p) < 1:
        error = sum(mass.error for mass in masses)
        for floor in sorted({logit for logit in logits if logit >= floor}, reverse=True):
            kept = total([mass for mass, logit in zip(masses, logits, strict=True) if logit >= floor]).value
            is_ambiguous |= abs(kept - least) <= error + 2 * len(masses) * UNIT * kept
            if kept >= least:
                break
        masses = [mass if logit >= floor else NOTHING for mass, logit in zip(masses, logits, strict=True)]
    return Target(tuple(masses), is_ambiguous)


def _weight(logit: float, floor: float, largest: float, temperature: float) -> Mass:
    if logit < floor or logit == -inf:
        return NOTHING
    x = (largest - logit) / (temperature * ONE)
    value = exp(-x)
    return Mass(value, value * (8 * x + 16) * UNIT + TINY)


def select(masses: Sequence[Mass], params: SamplingParams, position: int) -> tuple[int, bool]:
    """Return the token that the noise of a position selects by masses, and if it may be another."""
    block_size = BLOCK_SIZE_MIN
    while block_size * BLOCKS_MAX < len(masses):
        block_size *= 2
    first, is_ambiguous = 0, False
    for size, number in zip((block_size, TILE_SIZE, 1), noise(params, position, SELECT_STREAM), strict=False):
        if len(masses) <= size:
            continue
        parts = masses if size == 1 else [total(masses[at : at + size]) for at in range(0, len(masses), size)]
        part, is_close = pick(parts, number)
        masses = masses[part * size : (part + 1) * size]
        first, is_ambiguous = first + part * size, is_ambiguous or is_close
    return first, is_ambiguous


def choose(logits: Sequence[float], params: SamplingParams, position: int) -> Choice:
    """Return the token that the noise of a position selects from the target distribution."""
    target = target_of(logits, params)
    if target is None:
        return Choice(None, is_ambiguous=False)
    token, is_ambiguous = select(target.masses, params, position)
    return Choice(token, is_ambiguous or target.is_ambiguous)


def verify(
    method: SamplingMethod,
    lines: Sequence[Sequence[float]],
    drafts: Sequence[int],
    params: SamplingParams,
    rates: Sequence[float],
    position: int,
) -> Verified:
    """Return the tokens of a row: the drafts that are kept, and one that is selected after them, if there is a target.

    `lines` holds the logits of each draft's column and of one more, `position` is that of the token which the first
    decides. A draft that is no token, or for which there is no target, ends the drafts: the target goes on there.
    """
    targets = [target_of(line, params) for line in lines]
    known: list[Target] = []
    for target, draft in zip(targets, drafts, strict=False):
        if target is None or not 0 <= draft < len(target.masses):
            break
        known.append(target)
    kept, is_ambiguous = 0, False
    if method == "block":
        numbers = [noise(params, position + column, ACCEPT_STREAM)[0] for column in range(len(known))]
        kept, is_ambiguous = kept_together(known, drafts, numbers)
    else:
        for column, target in enumerate(known):
            rate = rates[column] if method == "synthetic" else 1.0
            is_kept, is_close = _is_kept(method, target, drafts[column], params, rate, position + column)
            is_ambiguous |= is_close
            if not is_kept:
                break
            kept += 1
    last = targets[kept]
    if last is None:
        return Verified(tuple(drafts[:kept]), is_ambiguous and params.temperature > 0)
    is_rejected = kept < len(known) and method in ("standard", "block")
    masses = last.without(drafts[kept]) if is_rejected else last.masses
    token, is_close = select(masses, params, position + kept)
    is_ambiguous |= is_close or last.is_ambiguous
    return Verified((*drafts[:kept], token), is_ambiguous and params.temperature > 0)


def _is_kept(
    method: SamplingMethod, target: Target, draft: int, params: SamplingParams, rate: float, position: int
) -> tuple[bool, bool]:
    """Tell whether a draft is kept, and if float32 could decide otherwise."""
    number = noise(params, position, ACCEPT_STREAM)[0]
    if method == "synthetic":
        return number < float32(rate), False
    if method == "strict":
        token, is_close = select(target.masses, params, position)
        return token == draft, is_close or target.is_ambiguous
    # It is kept if the number lies in its part of the whole.
    part, is_close = pick((target.masses[draft], *target.without(draft)), number)
    return part == 0, is_close or target.is_ambiguous


def kept_together(targets: Sequence[Target], drafts: Sequence[int], numbers: Sequence[float]) -> tuple[int, bool]:
    """Return how many drafts are kept by block verification, arXiv 2403.10444, and if float32 could keep others.

    The odds of some drafts are their probabilities multiplied, for q is 1; what is left after them is what the target
    gives to all tokens but the next draft, times the odds. Of odds and rest `off` and `rest_off` are relative errors.
    """
    odds, off, kept, is_ambiguous = 1.0, 0.0, 0, False
    for column, target in enumerate(targets):
        mass, whole = target.masses[drafts[column]], total(target.masses)
        odds *= mass.value / whole.value
        off += _off(mass) + _off(whole) + 8 * UNIT
        if column + 1 == len(targets):
            bound, limit, error = odds, 1.0, odds * off + UNIT
        else:
            whole, rest = total(targets[column + 1].masses), total(targets[column + 1].without(drafts[column + 1]))
            bound = odds * rest.value / whole.value
            limit = bound + 1 - odds
            rest_off = off + _off(rest) + _off(whole) + 8 * UNIT
            error = 2 * bound * rest_off + odds * off + 8 * UNIT
        is_close = bound > 0 and abs(numbers[column] * limit - bound) <= error
        if numbers[column] * limit < bound:
            kept = column + 1
            # If so many are kept for certain, it does not matter whether fewer would be.
            is_ambiguous = is_close
        else:
            is_ambiguous |= is_close
    return kept, is_ambiguous or any(target.is_ambiguous for target in targets)


def _off(mass: Mass) -> float:
    return mass.error / mass.value if mass.value > 0 else 0.0
