"""Compare a kernel of vLLM with a device op of ours, row by row, and count the equal values.

A condition is a property of a row's input, never of an output; the empty condition is the domain that both share.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.argument import Arguments

Array = NDArray[Any]
# Function that runs a twin of an op and returns its outputs by argument name.
Ours = Callable[[Arguments], dict[str, Array]]
# Masks of our ops have one 32-bit word per int64, vLLM's one per int32.
WORD_BITS = 32


class Found(NamedTuple):
    """A pair of values, of our op and of a vLLM kernel, and the condition of its batch row.

    `theirs` is None if the kernel would access memory out of bounds.
    """

    condition: str
    ours: Any
    theirs: Any
    tolerance: float = 0.0

    @property
    def is_same(self) -> bool:
        """Return whether both values are equal; NaN equals NaN."""
        ours, theirs = np.asarray(self.ours), np.asarray(self.theirs)
        if ours.shape != theirs.shape:
            return False
        if not self.tolerance:
            return bool(np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"))
        return bool(np.allclose(ours, theirs, rtol=0, atol=self.tolerance, equal_nan=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A vLLM kernel, our device op, and the function that yields pairs of their values."""

    kernel: str
    module: str
    op: str
    compare: Callable[[Ours], Iterable[Found]]


@dataclass(slots=True)
class Count:
    """Numbers of equal, different and skipped values under one condition, with an example."""

    num_same: int = 0
    num_other: int = 0
    num_not_given: int = 0
    example: str = ""

    def add(self, found: Found) -> None:
        """Count one pair of values."""
        if found.theirs is None:
            self.num_not_given += 1
        elif found.is_same:
            self.num_same += 1
        else:
            self.num_other += 1
            self.example = self.example or f"ours {_text(found.ours)}, vLLM's {_text(found.theirs)}"


def counted(found: Iterable[Found]) -> dict[str, Count]:
    """Count equal and different values, grouped by each batch row's condition (such as greedy)."""
    counts: dict[str, Count] = {}
    for each in found:
        counts.setdefault(each.condition, Count()).add(each)
    return counts


def first_of(conditions: Iterator[str] | Iterable[str]) -> str:
    """Return the first condition that is not "", else ""."""
    return next((condition for condition in conditions if condition), "")


def _text(value: Any) -> str:
    text = str(np.asarray(value).tolist())
    return text if len(text) <= 80 else f"{text[:77]}..."
