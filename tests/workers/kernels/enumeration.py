"""Enumerate the results of verification: all draft tokens, and a cell of noise per outcome.

A cell is a box of noise with an interval for each number. Its sides are the break points of the algorithm, rational
because the weights of tokens are powers of two; so the distribution of committed tokens is a sum of products of
Fractions. The ops decide: each cell is run at its lowest and at its highest corner, MARGIN inside. Every decision
compares a multiple of one noise number with a bound, so it is the same throughout the cell. In float32 a break point
is less than 2^-20 off; a larger shift makes the corners of some cell differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.workers.kernels.verification import BINARY, Drafts, drafts_of
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN
from workers.kernels.verify_drafts.definition import BLOCK, STRICT

MARGIN = Fraction(1, 1 << 17)

# Where a number of noise is: ("accept", column), or ("select", column, try, level).
Place = tuple[Any, ...]
Cell = dict[Place, tuple[Fraction, Fraction]]
Weights = tuple[Fraction, ...]
Verify = Callable[[Drafts], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class World:
    """A target and a drafter, as base-2 logarithms of the next token's weights (None for 0).

    After the k draft tokens there are `unproposed` columns without a proposed draft token.
    """

    method: int
    vocab_size: int
    k: int
    num_tries: int
    block_size: int
    tile_size: int
    target: dict[tuple[int, ...], tuple[int | None, ...]]
    draft: dict[tuple[int, ...], tuple[int | None, ...]]
    greedy: bool = False
    point_mass: bool = False
    unproposed: int = 0

    def p(self, prefix: tuple[int, ...]) -> Weights:
        """Return the distribution of the next token: at temperature 0 the first of the best."""
        if self.greedy:
            scores = [-99 if each is None else each for each in self.target[prefix]]
            return tuple(Fraction(int(t == scores.index(max(scores)))) for t in range(self.vocab_size))
        return _normalised(self.target[prefix])

    def q(self, prefix: tuple[int, ...]) -> Weights:
        """Return the distribution of a draft token; a point mass is the first of the best."""
        law = _normalised(self.draft[prefix])
        if self.point_mass:
            return tuple(Fraction(int(t == law.index(max(law)))) for t in range(self.vocab_size))
        return law

    def paths(self) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        """Yield every sequence of draft tokens, with its probability."""
        for drafts in product(range(self.vocab_size), repeat=self.k):
            joint_ratio = _product(self.q(drafts[:c])[drafts[c]] for c in range(self.k))
            if joint_ratio:
                yield drafts, joint_ratio


def world(seed: int, **sizes: Any) -> World:
    """Return a random world: impossible tokens, and draft tokens with the target's distribution."""
    rng = np.random.default_rng(seed)
    vocab_size, k = sizes["vocab_size"], sizes["k"]

    def law() -> tuple[int | None, ...]:
        weights = [None if rng.random() < 0.25 else int(rng.integers(0, 4)) for _ in range(vocab_size)]
        return tuple(weights) if any(each is not None for each in weights) else (0,) * vocab_size

    prefixes = [prefix for c in range(k + 1) for prefix in product(range(vocab_size), repeat=c)]
    target = {prefix: law() for prefix in prefixes}
    draft = {prefix: target[prefix] if rng.random() < 0.1 else law() for prefix in prefixes if len(prefix) < k}
    return World(target=target, draft=draft, **sizes)


def cells(at: World, drafts: tuple[int, ...]) -> Iterator[tuple[Cell, Fraction]]:
    """Yield each cell of the random numbers that decide about these draft tokens, with its size."""
    if at.greedy:
        yield {}, Fraction(1)
    elif at.method == STRICT:
        yield from _strict(at, drafts, 0)
    elif at.method == BLOCK:
        yield from _together(at, drafts)
    else:
        yield from _standard(at, drafts, 0)


def _strict(at: World, drafts: tuple[int, ...], column: int) -> Iterator[tuple[Cell, Fraction]]:
    for token, cell, size in _selections(at, at.p(drafts[:column]), column, 0):
        if column < len(drafts) and drafts[column] == token:
            for rest, other in _strict(at, drafts, column + 1):
                yield cell | rest, size * other
        else:
            yield cell, size


def _standard(at: World, drafts: tuple[int, ...], column: int) -> Iterator[tuple[Cell, Fraction]]:
    if column == len(drafts):
        yield from _direct(at, drafts, column)
        return
    prefix, draft = drafts[:column], drafts[column]
    bound = min(Fraction(1), at.p(prefix)[draft] / at.q(prefix)[draft])
    for cell, size in _side(("accept", column), Fraction(0), bound):
        for rest, other in _standard(at, drafts, column + 1):
            yield cell | rest, size * other
    for cell, size in _side(("accept", column), bound, Fraction(1)):
        for rest, other in _recoveries(at, drafts, column, Fraction(1)):
            yield cell | rest, size * other


def _together(at: World, drafts: tuple[int, ...]) -> Iterator[tuple[Cell, Fraction]]:
    joint_ratio, bounds = [Fraction(1)], []
    for i, draft in enumerate(drafts):
        joint_ratio.append(min(Fraction(1), joint_ratio[i] * at.p(drafts[:i])[draft] / at.q(drafts[:i])[draft]))
        left = (
            sum(_residual(at, drafts, i + 1, joint_ratio[-1]), Fraction(0)) if i + 1 < len(drafts) else joint_ratio[-1]
        )
        whole = left + 1 - joint_ratio[-1] if i + 1 < len(drafts) else Fraction(1)
        bounds.append(left / whole if whole else Fraction(1))
    for kept in product((True, False), repeat=len(drafts)):
        accepted = max((i + 1 for i, each in enumerate(kept) if each), default=0)
        cell, size = {}, Fraction(1)
        for i, (each, bound) in enumerate(zip(kept, bounds, strict=True)):
            low, high = (Fraction(0), bound) if each else (bound, Fraction(1))
            cell[("accept", i)], size = (low, high), size * (high - low)
        if size:
            ways = _recoveries(at, drafts, accepted, joint_ratio[accepted]) if accepted < len(drafts) else None
            for rest, other in ways or _direct(at, drafts, accepted):
                yield cell | rest, size * other


def _direct(at: World, drafts: tuple[int, ...], column: int) -> Iterator[tuple[Cell, Fraction]]:
    for _, cell, size in _selections(at, at.p(drafts[:column]), column, 0):
        yield cell, size


def _recoveries(
    at: World, drafts: tuple[int, ...], column: int, joint_ratio: Fraction, index: int = 0
) -> Iterator[Any]:
    """Yield the cells of one accepted try, of the next try, or of the summed residual."""
    p, left = at.p(drafts[:column]), _residual(at, drafts, column, joint_ratio)
    if at.point_mass:
        for _, cell, size in _selections(at, left, column, 0):
            yield cell, size
        return
    if index == at.num_tries:
        for _, cell, size in _selections(at, left, column, index, of_residual=True):
            yield cell, size
        return
    for token, cell, size in _selections(at, p, column, index):
        bound = left[token] / (joint_ratio * p[token])
        for side, length in _side(("select", column, index, 3), Fraction(0), bound):
            yield cell | side, size * length
        for side, length in _side(("select", column, index, 3), bound, Fraction(1)):
            for rest, other in _recoveries(at, drafts, column, joint_ratio, index + 1):
                yield cell | side | rest, size * length * other


def _residual(at: World, drafts: tuple[int, ...], column: int, joint_ratio: Fraction) -> Weights:
    p, q = at.p(drafts[:column]), at.q(drafts[:column])
    return tuple(max(joint_ratio * one - other, Fraction(0)) for one, other in zip(p, q, strict=True))


def _selections(
    at: World, masses: Weights, column: int, index: int, of_residual: bool = False
) -> Iterator[tuple[int, Cell, Fraction]]:
    """Yield each token with mass, and the intervals of noise that select it.

    A token is selected by block, tile and itself; from a residual by tile, place in the block, and block.
    """
    tokens = range(at.vocab_size)
    block, tile = [t // at.block_size for t in tokens], [t // at.tile_size for t in tokens]
    place = [t % at.block_size for t in tokens]
    levels = [(0, block), (1, tile), (2, [*tokens])]
    if of_residual:
        levels = [(1, [each // at.tile_size for each in place]), (2, place), (0, [*tokens])]
    for token in tokens:
        if not masses[token]:
            continue
        cell, size, inside = {}, Fraction(1), [*tokens]
        for level, group in levels:
            total = sum(masses[t] for t in inside)
            before = sum((masses[t] for t in inside if group[t] < group[token]), Fraction(0))
            inside = [t for t in inside if group[t] == group[token]]
            own = sum(masses[t] for t in inside)
            cell[("select", column, index, level)] = (before / total, (before + own) / total)
            size *= own / total
        yield token, cell, size


def _side(place: Place, low: Fraction, high: Fraction) -> Iterator[tuple[Cell, Fraction]]:
    if low < high:
        yield {place: (low, high)}, high - low


def committed(at: World, verify: Verify, seed: int = 0) -> tuple[dict[tuple[int, ...], Fraction], int]:
    """Return the distribution of the first 1 + K tokens, and how many cells have two results.

    If fewer tokens are committed, the rest follows the target's distribution.
    """
    found = [
        (drafts, joint_ratio * size, cell) for drafts, joint_ratio in at.paths() for cell, size in cells(at, drafts)
    ]
    assert sum(size for _, size, _ in found) == 1
    sampled = verify(_batch(at, found, np.random.default_rng(seed)))
    law: dict[tuple[int, ...], Fraction] = {}
    differing = 0
    for (_, size, _), low, high in zip(found, sampled[::2].tolist(), sampled[1::2].tolist(), strict=True):
        differing += low != high
        tokens = tuple(token for token in low if token != NO_TOKEN)
        assert low == [*tokens, *[NO_TOKEN] * (at.k + at.unproposed + 1 - len(tokens))]
        for rest in product(range(at.vocab_size), repeat=at.k + 1 - len(tokens)):
            whole = tokens + rest
            share = size * _product(at.p(whole[:c])[whole[c]] for c in range(len(tokens), at.k + 1))
            law[whole] = law.get(whole, Fraction(0)) + share
    return law, differing


def total_variation(at: World, law: dict[tuple[int, ...], Fraction]) -> Fraction:
    """Return the distance of a distribution of 1 + K tokens from the target's."""
    distance = Fraction(0)
    for tokens in product(range(at.vocab_size), repeat=at.k + 1):
        target = _product(at.p(tokens[:c])[tokens[c]] for c in range(at.k + 1))
        distance += abs(law.get(tokens, Fraction(0)) - target)
    return distance / 2


def _batch(at: World, found: list[tuple[tuple[int, ...], Fraction, Cell]], rng: np.random.Generator) -> Drafts:
    """Return two rows per cell: its lowest and its highest corner; irrelevant noise is random."""
    num_rows, k = 2 * len(found), at.k + at.unproposed
    width = 1 + k
    logits = rng.integers(0, 4, (num_rows, width, at.vocab_size)).astype(np.float32)
    draft_logits = rng.integers(0, 4, (num_rows, k, at.vocab_size)).astype(np.float32)
    drafts_made = np.full((num_rows, k), NO_DRAFT, dtype=np.int64)
    accept = rng.random((num_rows, k)).astype(np.float32)
    select = rng.random((num_rows, width, 1 + at.num_tries, 4)).astype(np.float32)
    for i, (drafts, _, cell) in enumerate(found):
        rows = slice(2 * i, 2 * i + 2)
        drafts_made[rows, : at.k] = drafts
        logits[rows, : at.k + 1] = [[_logit(each) for each in at.target[drafts[:c]]] for c in range(at.k + 1)]
        if at.k:
            draft_logits[rows, : at.k] = [[_logit(each) for each in at.draft[drafts[:c]]] for c in range(at.k)]
        for (kind, *where), (low, high) in cell.items():
            assert high - low > 4 * MARGIN, "float32 cannot distinguish two break points"
            noise = accept if kind == "accept" else select
            noise[(2 * i, *where)], noise[(2 * i + 1, *where)] = float(low + MARGIN), float(high - MARGIN)
    return drafts_of(
        at.method,
        at.block_size,
        at.tile_size,
        logits=logits,
        draft_logits=draft_logits,
        drafts=drafts_made,
        num_drafts=np.full(num_rows, k, dtype=np.int64),
        temperature=np.full(num_rows, 0 if at.greedy else BINARY, dtype=np.float32),
        point_mass=np.full(num_rows, int(at.point_mass), dtype=np.int64),
        accept_noise=accept,
        select_noise=select,
    )


def _logit(exponent: int | None) -> float:
    return -np.inf if exponent is None else exponent


def _normalised(exponents: tuple[int | None, ...]) -> Weights:
    weights = [Fraction(0) if each is None else Fraction(2) ** each for each in exponents]
    return tuple(each / sum(weights) for each in weights)


def _product(factors: Iterator[Fraction]) -> Fraction:
    result = Fraction(1)
    for factor in factors:
        result *= factor
    return result
