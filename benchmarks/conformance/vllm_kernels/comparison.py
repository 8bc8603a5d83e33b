"""Comparison of a kernel of vLLM with a device op of ours: what was found, row by row, and how much of it is the same.

A condition is a property of a row's input, never of what came out; the empty one is the domain that both share.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.argument import Arguments

Array = NDArray[Any]
# What a twin of an op leaves in its outputs, by argument.
Ours = Callable[[Arguments], dict[str, Array]]
# Bits of a mask of our ops are in words of int64, those of vLLM in words of int32.
WORD_BITS = 32


class Found(NamedTuple):
    """One value of both; `theirs` is None where a kernel is not given the input, because it would leave its memory."""

    condition: str
    ours: Any
    theirs: Any
    tolerance: float = 0.0

    @property
    def is_same(self) -> bool:
        """Tell whether both are the same; a number that is none is like another."""
        ours, theirs = np.asarray(self.ours), np.asarray(self.theirs)
        if ours.shape != theirs.shape:
            return False
        if not self.tolerance:
            return bool(np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"))
        return bool(np.allclose(ours, theirs, rtol=0, atol=self.tolerance, equal_nan=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A kernel of vLLM, the op of ours that it is compared with, and how; `module` lies in the package vllm.v1."""

    kernel: str
    module: str
    op: str
    compare: Callable[[Ours], Iterable[Found]]


@dataclass(slots=True)
class Count:
    """How many rows under a condition were the same, others, and not given to the kernel; with one that was other."""

    num_same: int = 0
    num_other: int = 0
    num_not_given: int = 0
    example: str = ""

    def add(self, found: Found) -> None:
        """Count one row."""
        if found.theirs is None:
            self.num_not_given += 1
        elif found.is_same:
            self.num_same += 1
        else:
            self.num_other += 1
            self.example = self.example or f"ours {_text(found.ours)}, vLLM's {_text(found.theirs)}"


def counted(found: Iterable[Found]) -> dict[str, Count]:
    """Return the counts of a comparison by condition."""
    counts: dict[str, Count] = {}
    for each in found:
        counts.setdefault(each.condition, Count()).add(each)
    return counts


def first_of(conditions: Iterator[str] | Iterable[str]) -> str:
    """Return the first condition that is met, the empty one if none is."""
    return next((condition for condition in conditions if condition), "")


def _text(value: Any) -> str:
    text = str(np.asarray(value).tolist())
    return text if len(text) <= 80 else f"{text[:77]}..."
