"""Reference random sampler: a token from a distribution and its position's random numbers.

A float32 sampler may decide otherwise where a random number is close to a border: such results are marked ambiguous.

In float64, one token at a time. A token is selected in three steps (block of the vocabulary, tile of the block, token),
each with its own random number (docs/decisions/0003).

A decision is ambiguous if float32 could decide otherwise. UNIT is the largest relative error of one rounding. The
relative error of a weight exp(-x) is at most (8 x + 16) UNIT: 8 per x, from log2(e), the temperature, a quotient (4 on
a GPU), a difference and a product; 8 from the exponential, and as much again if a block's weight is multiplied by the
token's. The relative error of a sum of n terms, in any order, is at most n UNIT; zero terms do not count. Anything that
underflows is below TINY.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import exp, inf, isnan
from operator import add
from struct import pack, unpack
from sys import float_info
from typing import NamedTuple, TypeAlias

from scenarios.draw import philox4x32
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.oracle.logits_processing import ONE

UNIT = 2.0**-24
TINY = 2.0**-126
LEAST = -float_info.max
DRAFT_STREAM, ACCEPT_STREAM, SELECT_STREAM = 0, 1, 2
BLOCKS_MAX = 32


@dataclass(frozen=True, slots=True)
class Selection:
    """A sampled token (None if none is possible), and whether rounding could change it."""

    token: int | None
    is_ambiguous: bool


class Mass(NamedTuple):
    """A token's unnormalised probability, or a sum of them, with its possible float32 error.

    A 0 without error is also 0 in float32.
    """

    value: float
    error: float


NOTHING = Mass(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class TargetDistribution:
    """Unnormalised token probabilities after temperature, top-k and top-p.

    It is ambiguous if float32 could put the top-p border elsewhere.
    """

    masses: tuple[Mass, ...]
    is_ambiguous: bool

    def without(self, token: int) -> tuple[Mass, ...]:
        """Return the token masses with one token set to 0."""
        return (*self.masses[:token], NOTHING, *self.masses[token + 1 :])

    def probabilities(self) -> list[float]:
        total = sum(mass.value for mass in self.masses)
        return [mass.value / total for mass in self.masses]


def float32(value: float) -> float:
    """Return the nearest single-precision number."""
    rounded: float = unpack("f", pack("f", value))[0]
    return rounded


def noise(params: SamplingParams, position: int, stream: int, index: int = 0) -> tuple[float, ...]:
    """Return four random numbers in [0, 1), a function of (seed, position, stream, index)."""
    return _noise_of(params.seed, position, stream, index)


@lru_cache(maxsize=4096)
def _noise_of(seed: int, position: int, stream: int, index: int) -> tuple[float, ...]:
    counter = (position & 0xFFFFFFFF, position >> 32, stream, index)
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return tuple([(word >> 8) * 2.0**-24 for word in words])


def total(masses: Sequence[Mass]) -> Mass:
    """Return the sum of masses, with its float32 error."""
    num_terms = len(masses) - masses.count(NOTHING)
    values, errors = zip(*masses, strict=True)
    value, error = reduce(add, values, 0.0), reduce(add, errors, 0.0)
    return Mass(value, error + num_terms * UNIT * value)


def pick(masses: Sequence[Mass], number: float) -> tuple[int, bool]:
    """Return the first index whose running sum exceeds number * total, and if rounding matters.

    Also return whether that is ambiguous.

    Float32 could find another index if the running sum minus number * total, that is (1 - number) times the masses
    before minus number times the masses after, is near 0. Errors change it by the same multiples of their own, and both
    sums have a relative error of n UNIT. An index with neither mass nor error is never ambiguous; one with only error
    may be.
    """
    num_terms = left = len(masses) - masses.count(NOTHING)
    values, errors = zip(*masses, strict=True)
    wanted, after, before = number * sum(values), sum(errors), 0.0
    picked, is_ambiguous, running = None, False, 0.0
    rest, rounding = 1 - number, 2 * num_terms * UNIT
    for index, (value, its_error) in enumerate(masses):
        if value == 0 and its_error == 0:
            continue
        left -= 1
        if not left:
            # The last index with mass or error has no later index to be confused with.
            break
        running += value
        before, after = before + its_error, after - its_error
        error = rest * before + number * (after if after > 0 else 0.0)
        is_ambiguous |= abs(running - wanted) <= error + rounding * running
        if picked is None and running > wanted:
            picked = index
    if picked is None:
        # The last index with a mass; the indexes after the end of the loop have none.
        picked = next(at for at in range(index, -1, -1) if values[at] > 0)
    return picked, is_ambiguous


def target_of(logits: Sequence[float], params: SamplingParams) -> TargetDistribution | None:
    """Return the target distribution of logits; None if one is NaN or inf, or all are -inf.

    Logits are in units of 1 / ONE. At temperature 0, the lowest of the largest logits has all probability.
    """
    largest = max(logits)
    if any(map(isnan, logits)) or largest in (inf, -inf):
        return None
    if params.temperature == 0:
        best = list(logits).index(largest)
        return TargetDistribution(
            tuple(Mass(float(token == best), 0.0) for token in range(len(logits))), is_ambiguous=False
        )
    floor = sorted(logits)[-params.top_k] if 0 < params.top_k < len(logits) else -inf
    masses = weights(logits, floor, params.temperature)
    is_ambiguous = False
    if float32(params.top_p) < 1:
        least, error = float32(params.top_p) * total(masses).value, sum([mass.error for mass in masses])
        # The lowest floor keeps everything, which always suffices.
        for floor in sorted({*logits}, reverse=True):
            kept = total([mass for mass, logit in zip(masses, logits, strict=True) if logit >= floor]).value
            is_ambiguous |= abs(kept - least) <= error + 2 * len(masses) * UNIT * kept
            if kept >= least:
                break
        masses = [mass if logit >= floor else NOTHING for mass, logit in zip(masses, logits, strict=True)]
    return TargetDistribution(tuple(masses), is_ambiguous)


def weights(logits: Sequence[float], floor: float, temperature: float) -> list[Mass]:
    """Return exp(logit - maximum) for logits at or above the top-k/top-p floor, else 0.

    The temperature must be above 0.
    """
    largest, unit = max(logits), temperature * ONE
    # Excludes -inf.
    floor = max(floor, LEAST)
    found = [NOTHING] * len(logits)
    for token, logit in enumerate(logits):
        if logit >= floor:
            x = (largest - logit) / unit
            value = exp(-x)
            found[token] = Mass(value, value * (8 * x + 16) * UNIT + TINY)
    return found


class Cuts(NamedTuple):
    """Sizes of the vocabulary blocks, and of their tiles, in which a sampler adds probabilities.

    Both are powers of two.
    """

    block: int = 4096
    tile: int = 128

    def block_size(self, vocab_size: int) -> int:
        """Return the number of tokens per vocabulary block."""
        block_size = self.block
        while block_size * BLOCKS_MAX < vocab_size:
            block_size *= 2
        return block_size


USUAL = Cuts()


def cuts_of(spec: EngineSpec) -> Cuts:
    """Return the vocabulary block and tile sizes of a specification's sampler."""
    return Cuts(spec.vocab_block, spec.vocab_tile)


def select(masses: Sequence[Mass], numbers: Sequence[float], cuts: Cuts = USUAL) -> tuple[int, bool]:
    """Sample a token by random numbers for block, tile, token; also return if rounding matters."""
    first, is_ambiguous = 0, False
    for size, number in zip((cuts.block_size(len(masses)), cuts.tile, 1), numbers, strict=False):
        if len(masses) <= size:
            continue
        parts = masses if size == 1 else [total(masses[at : at + size]) for at in range(0, len(masses), size)]
        part, is_close = pick(parts, number)
        masses = masses[part * size : (part + 1) * size]
        first, is_ambiguous = first + part * size, is_ambiguous or is_close
    return first, is_ambiguous


def choose(logits: Sequence[float], params: SamplingParams, position: int, cuts: Cuts = USUAL) -> Selection:
    """Sample a token from the target distribution, with the random numbers of its position."""
    target = target_of(logits, params)
    if target is None:
        return Selection(None, is_ambiguous=False)
    token, is_ambiguous = select(target.masses, noise(params, position, SELECT_STREAM), cuts)
    return Selection(token, is_ambiguous or target.is_ambiguous)


class Proposal(NamedTuple):
    """A sampled draft token: its logits, its distribution, and whether rounding could change it.

    Logits corrupted by an event have no weights, because they are no distribution.
    """

    token: int
    logits: Sequence[float]
    masses: Sequence[Mass]
    is_ambiguous: bool


def propose(logits: Sequence[int], params: SamplingParams, position: int, index: int, cuts: Cuts = USUAL) -> Proposal:
    """Sample draft token `index` after `position` from the drafter's logits.

    Logits are fixed point, in units of 1 / ONE.
    """
    masses = weights(logits, -inf, params.temperature)
    token, is_ambiguous = select(masses, noise(params, position, DRAFT_STREAM, index), cuts)
    return Proposal(token, logits, masses, is_ambiguous)


Drawn: TypeAlias = tuple[Proposal, ...]


def with_undefined_logit(proposal: Proposal, token: int, value: float) -> Proposal:
    """Return a draft proposal with one logit replaced by NaN or infinity."""
    logits = [*proposal.logits[:token], value, *proposal.logits[token + 1 :]]
    return proposal._replace(logits=logits, masses=())
