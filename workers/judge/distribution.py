"""G-tests of sampled tokens: one sample against probabilities, or one against another.

Verifies:
- that the counts of outcomes are likely under a distribution;
- or that two samples are likely to have the same distribution.
Rare outcomes are pooled.

Does not verify: any single sampled token. The p-value is that of the chi-square distribution, which is accurate if the
expected count of each cell is at least EXPECTED_MIN.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import erfc, exp, inf, lgamma, log, sqrt
from typing import TypeAlias

# Outcomes with a smaller expected count are pooled.
EXPECTED_MIN = 5.0

Outcome: TypeAlias = tuple[int, ...]


def g_test(counts: Mapping[Outcome, int], law: Mapping[Outcome, float]) -> tuple[float, int]:
    """Return (statistic, degrees of freedom) of a G-test of counts against probabilities `law`.

    The degrees are the degrees of freedom.
    """
    if any(outcome not in law for outcome in counts):
        return inf, len(law)
    num = sum(counts.values())
    cells = [(num * probability, (counts.get(outcome, 0),)) for outcome, probability in law.items()]
    pooled = list(_pooled(cells))
    return 2 * sum(_term(seen, expected) for expected, (seen,) in pooled), len(pooled) - 1


def two_sample_g_test(first: Mapping[Outcome, int], second: Mapping[Outcome, int]) -> tuple[float, int]:
    """Return (statistic, degrees of freedom) of a G-test that two samples have one distribution."""
    sizes = sum(first.values()), sum(second.values())
    share = min(sizes) / sum(sizes)
    both = {outcome: (first.get(outcome, 0), second.get(outcome, 0)) for outcome in sorted({*first, *second})}
    pooled = list(_pooled((sum(seen) * share, seen) for seen in both.values()))
    statistic = 0.0
    for _, seen in pooled:
        for count, size in zip(seen, sizes, strict=True):
            statistic += _term(count, sum(seen) * size / sum(sizes))
    return 2 * statistic, len(pooled) - 1


def chance_of(statistic: float, degrees: int) -> float:
    """Return the probability (p-value) that a chi-square variable exceeds `statistic`."""
    half, a = statistic / 2, 0.5 if degrees % 2 else 1.0
    if half in (0.0, inf):
        return 1.0 if half == 0 else 0.0
    found = erfc(sqrt(half)) if degrees % 2 else exp(-half)
    while a < degrees / 2:
        found += exp(a * log(half) - half - lgamma(a + 1))
        a += 1
    return found


def _term(seen: int, expected: float) -> float:
    return seen * log(seen / expected) if seen else 0.0


def _pooled(cells: Iterable[tuple[float, tuple[int, ...]]]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Merge rare outcomes until each cell expects EXPECTED_MIN; yield (expected, counts)."""
    few: tuple[float, tuple[int, ...]] | None = None
    for expected, seen in sorted(cells, key=lambda cell: cell[0]):
        if few is None:
            few = expected, seen
        elif expected < EXPECTED_MIN or few[0] < EXPECTED_MIN:
            few = few[0] + expected, tuple(map(sum, zip(few[1], seen, strict=True)))
        else:
            yield expected, seen
    if few is not None:
        yield few
