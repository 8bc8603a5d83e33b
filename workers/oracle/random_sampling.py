"""Reference random sampler: draw a token from a distribution by the noise of its position.

In float64, one token at a time. A token is selected by its block of the vocabulary, its tile in that, and itself, each
by its own number of noise (docs/decisions/0003).

Where float32 could decide otherwise a decision is ambiguous. UNIT is the largest relative error of one rounding.
A weight exp(-x) is off by at most (8 x + 16) UNIT of itself: x by 8, of log2(e), the temperature, a quotient (4 on a
GPU), a difference and a product; the exponential by 8, and as much once more where one of its block is multiplied by
that of the token. A sum of n terms is, in whatever order, off by at most n UNIT of itself; a term of 0 is none.
Whatever underflows is below TINY.
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
    """A token, or None where there is no distribution, and whether float32 could choose another."""

    token: int | None
    is_ambiguous: bool


class Mass(NamedTuple):
    """A weight, or a sum of weights, and how far off float32 may be. What is 0 without error is 0 there too."""

    value: float
    error: float


NOTHING = Mass(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class TargetDistribution:
    """The weights of the tokens under a request's parameters, relative to the largest.

    It is ambiguous if float32 could draw the border of top-p elsewhere.
    """

    masses: tuple[Mass, ...]
    is_ambiguous: bool

    def without(self, token: int) -> tuple[Mass, ...]:
        """Return the weights with a token ruled out."""
        return (*self.masses[:token], NOTHING, *self.masses[token + 1 :])

    def probabilities(self) -> list[float]:
        total = sum(mass.value for mass in self.masses)
        return [mass.value / total for mass in self.masses]


def float32(value: float) -> float:
    """Return the nearest number of single precision."""
    rounded: float = unpack("f", pack("f", value))[0]
    return rounded


def noise(params: SamplingParams, position: int, stream: int, index: int = 0) -> tuple[float, ...]:
    """Return the four numbers in [0, 1) that a stream holds for a position and an index."""
    return _noise_of(params.seed, position, stream, index)


@lru_cache(maxsize=4096)
def _noise_of(seed: int, position: int, stream: int, index: int) -> tuple[float, ...]:
    counter = (position & 0xFFFFFFFF, position >> 32, stream, index)
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return tuple([(word >> 8) * 2.0**-24 for word in words])


def total(masses: Sequence[Mass]) -> Mass:
    """Return the sum of masses."""
    num_terms = len(masses) - masses.count(NOTHING)
    values, errors = zip(*masses, strict=True)
    value, error = reduce(add, values, 0.0), reduce(add, errors, 0.0)
    return Mass(value, error + num_terms * UNIT * value)


def pick(masses: Sequence[Mass], number: float) -> tuple[int, bool]:
    """Return the first index whose running sum exceeds the number times the total, and if float32 could find another.

    Two indexes meet where the running sum, less the number times the total, is 0: (1 - number) times the masses before,
    less the number times those behind. Errors move that by as much of theirs, and both sums are off by n UNIT. An index
    with neither mass nor error meets no other; one with only error may lie where others meet.
    """
    num_terms = left = len(masses) - masses.count(NOTHING)
    values, errors = zip(*masses, strict=True)
    wanted, behind, before = number * sum(values), sum(errors), 0.0
    picked, is_ambiguous, running = None, False, 0.0
    rest, rounding = 1 - number, 2 * num_terms * UNIT
    for index, (value, its_error) in enumerate(masses):
        if value == 0 and its_error == 0:
            continue
        left -= 1
        if not left:
            # Behind the last one nothing is left that it could meet.
            break
        running += value
        before, behind = before + its_error, behind - its_error
        error = rest * before + number * (behind if behind > 0 else 0.0)
        is_ambiguous |= abs(running - wanted) <= error + rounding * running
        if picked is None and running > wanted:
            picked = index
    if picked is None:
        # The last that has a mass; behind the one at which the loop ended none has.
        picked = next(at for at in range(index, -1, -1) if values[at] > 0)
    return picked, is_ambiguous


def target_of(logits: Sequence[float], params: SamplingParams) -> TargetDistribution | None:
    """Return the target distribution of processed logits, or None if there is none: NaN, inf, or nothing but -inf.

    Logits are in units of 1 / ONE. At temperature 0 the lowest of the largest logits has all of it.
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
        # The lowest floor keeps everything, which is enough.
        for floor in sorted({*logits}, reverse=True):
            kept = total([mass for mass, logit in zip(masses, logits, strict=True) if logit >= floor]).value
            is_ambiguous |= abs(kept - least) <= error + 2 * len(masses) * UNIT * kept
            if kept >= least:
                break
        masses = [mass if logit >= floor else NOTHING for mass, logit in zip(masses, logits, strict=True)]
    return TargetDistribution(tuple(masses), is_ambiguous)


def weights(logits: Sequence[float], floor: float, temperature: float) -> list[Mass]:
    """Return the weights of logits at or above the floor, relative to the largest, at a temperature above 0."""
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
    """Partition of a vocabulary: blocks of at least `block` tokens, and tiles of `tile`, both powers of two."""

    block: int = 4096
    tile: int = 128

    def block_size(self, vocab_size: int) -> int:
        """Return the number of tokens in a block; a small vocabulary is one block, whatever its size."""
        block_size = self.block
        while block_size * BLOCKS_MAX < vocab_size:
            block_size *= 2
        return block_size


USUAL = Cuts()


def cuts_of(spec: EngineSpec) -> Cuts:
    """Return the partition of the vocabulary in a specification's sampler."""
    return Cuts(spec.vocab_block, spec.vocab_tile)


def select(masses: Sequence[Mass], numbers: Sequence[float], cuts: Cuts = USUAL) -> tuple[int, bool]:
    """Return the token that three numbers select by masses, and whether float32 could select another."""
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
    """Return the token that the noise of a position selects from the target distribution."""
    target = target_of(logits, params)
    if target is None:
        return Selection(None, is_ambiguous=False)
    token, is_ambiguous = select(target.masses, noise(params, position, SELECT_STREAM), cuts)
    return Selection(token, is_ambiguous or target.is_ambiguous)


class Proposal(NamedTuple):
    """A drawn draft: the logits and weights it was drawn from, and whether float32 could draw another.

    Logits that an event has spoiled have no weights, for they are no distribution.
    """

    token: int
    logits: Sequence[float]
    masses: Sequence[Mass]
    is_ambiguous: bool


def propose(logits: Sequence[int], params: SamplingParams, position: int, index: int, cuts: Cuts = USUAL) -> Proposal:
    """Draw the draft `index` behind `position`, that of the first, from a drafter's logits in units of 1 / ONE."""
    masses = weights(logits, -inf, params.temperature)
    token, is_ambiguous = select(masses, noise(params, position, DRAFT_STREAM, index), cuts)
    return Proposal(token, logits, masses, is_ambiguous)


Drawn: TypeAlias = tuple[Proposal, ...]


def spoiled(proposal: Proposal, token: int, value: float) -> Proposal:
    """Return a proposal with one logit replaced by NaN or infinity."""
    logits = [*proposal.logits[:token], value, *proposal.logits[token + 1 :]]
    return proposal._replace(logits=logits, masses=())
