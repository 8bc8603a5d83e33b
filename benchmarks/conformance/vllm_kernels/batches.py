"""Batches that vLLM's kernels are launched on: rows of requests as its second runner has them, with hostile values.

Of a batch each argument of a kernel is drawn by its name, so that arguments of a launch fit each other: rows are a
permutation of some of the requests, tokens lie within a request, and so on. Requests of whom nothing is known hold
poison; lines of logits have ties, zeros of both signs, -inf, inf and numbers that are none.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
POISON = -(1 << 30)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a batch: rows, requests that there is room for, vocabulary, drafts, tokens that a request may have."""

    rows: int
    requests: int
    vocab: int
    drafts: int
    length: int


# Odd and even, none and one; a vocabulary and requests longer than a block of the kernels.
SIZES = (
    Sizes(3, 4, 33, 3, 70),
    Sizes(0, 2, 7, 1, 9),
    Sizes(1, 1, 1, 0, 5),
    Sizes(5, 9, 130, 4, 257),
    Sizes(2, 3, 1025, 2, 2100),
    Sizes(2, 3, 9001, 1, 40),
)


@dataclass(slots=True)
class Batch:
    """A batch of some sizes; the same for the same seed."""

    sizes: Sizes
    seed: int
    random: np.random.Generator = field(init=False)
    # Of each row: whose it is, its tokens in this step, its lines of logits, and where both begin.
    states: Array = field(init=False)
    query: Array = field(init=False)
    starts: Array = field(init=False)
    logits: Array = field(init=False)
    cu_logits: Array = field(init=False)
    # Of each request: tokens, those of its prompt, those that it is filled with, those computed before this step.
    total: Array = field(init=False)
    prompt: Array = field(init=False)
    prefill: Array = field(init=False)
    computed: Array = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, *(getattr(self.sizes, name) for name in Sizes.__slots__)])
        sizes, draw = self.sizes, self.random.integers
        self.states = self.random.permutation(sizes.requests)[: sizes.rows].astype(np.int64)
        self.logits = draw(1, sizes.drafts + 2, sizes.rows)
        most = max(2, (sizes.length - sizes.drafts) // 2)
        self.query = self.logits + np.where(draw(0, 3, sizes.rows) == 0, draw(0, most, sizes.rows), 0)
        self.starts = np.concatenate([[0], np.cumsum(self.query)])
        self.cu_logits = np.concatenate([[0], np.cumsum(self.logits)])
        self.total, self.prompt, self.prefill, self.computed = (np.zeros(sizes.requests, int) for _ in range(4))
        for row, state in enumerate(self.states):
            room = max(1, sizes.length - int(self.query[row]) - sizes.drafts)
            self.computed[state] = draw(0, room)
            around = self.computed[state] + self.query[row]
            self.total[state] = draw(1, max(2, sizes.length - sizes.drafts - 1))
            self.prompt[state] = draw(1, self.total[state] + 1)
            # Before, at, and behind the end of this step.
            self.prefill[state] = max(0, around + draw(-2, 3)) if draw(0, 2) else self.prompt[state]

    @property
    def num_tokens(self) -> int:
        return int(self.starts[-1])

    @property
    def num_logits(self) -> int:
        return int(self.cu_logits[-1])

    def of_requests(self, values: Array, dtype: Any = np.int32, poison: Any = POISON) -> Array:
        """Return values of requests, with poison where nobody is."""
        found = np.full(self.sizes.requests, poison, dtype=dtype)
        found[self.states] = values[self.states]
        return found

    def lengths(self) -> Array:
        """Return the lengths of rows behind this step."""
        return (self.computed[self.states] + self.query).astype(np.int32)

    def expanded(self) -> Array:
        """Return of each line of logits whose it is."""
        return np.repeat(self.states, self.logits)

    def local(self) -> Array:
        """Return of each line of logits the how-manieth of its row it is."""
        return np.concatenate([np.arange(count) for count in self.logits] or [np.zeros(0)]).astype(np.int32)

    def tokens(self, *shape: int, dtype: Any = np.int32) -> Array:
        return self.random.integers(0, self.sizes.vocab, shape).astype(dtype)

    def drafts(self, *shape: int, dtype: Any = np.int32) -> Array:
        """Return tokens, some of which are none."""
        return np.where(self.random.integers(0, 4, shape) == 0, -1, self.tokens(*shape)).astype(dtype)

    def seeds(self) -> Array:
        """Return a seed for each request, over all of 64 bits."""
        return self.random.integers(-(1 << 63), (1 << 63) - 1, self.sizes.requests)

    def positions(self, count: int) -> Array:
        return self.random.integers(0, 1 << 20, count)

    def temperatures(self) -> Array:
        """Return a temperature for each request: 0, 1 and others."""
        return self.random.choice(np.array([0, 0, 1, 0.7, 2, 1e-3], dtype=np.float32), self.sizes.requests)

    def lines(self, count: int, width: int | None = None) -> Array:
        """Return lines of logits, in a wider memory; some with what a line should not have."""
        size = self.sizes.vocab if width is None else width
        found = self.random.normal(0, 3, (count, size)).astype(np.float32)
        for line in found:
            match self.random.integers(0, 10):
                case 0:
                    line[:] = np.round(line)
                case 1:
                    line[self.random.integers(0, size, 1 + size // 2)] = -np.inf
                case 2:
                    line[:] = -np.inf
                case 3:
                    line[self.random.integers(0, size)] = np.nan
                case 4:
                    line[self.random.integers(0, size)] = np.inf
                case 5:
                    line[:] = self.random.choice(np.array([0.0, -0.0, -1.0], dtype=np.float32), size)
                case 6:
                    line[:] = line * 1e30
        return found
