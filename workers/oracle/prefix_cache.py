"""Reference prefix cache: free and cached blocks, by token prefix, with expected contents.

Blocks without contents are given out first, last freed first; then unreferenced cached blocks are evicted, least
recently used first. A request frees its blocks from the last one on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from workers.oracle.model_values import ModelValues


class Prefixes:
    """Numbers for token prefixes that end at a block end; equal prefixes have equal numbers."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        # Key: the number of the prefix before a block (0 before the first) and the block's tokens.
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}

    def extend(self, prefixes: list[int], tokens: Sequence[int], length: int) -> None:
        """Append the numbers of further prefixes, one per full block up to `length` tokens."""
        for start in range(len(prefixes) * self.block_size, length - self.block_size + 1, self.block_size):
            block = prefixes[-1] if prefixes else 0, tuple(tokens[start : start + self.block_size])
            prefixes.append(self._numbers.setdefault(block, 1 + len(self._numbers)))


@dataclass(frozen=True, slots=True)
class BlockContents:
    """Expected contents of a cached block: model values of a request, from position `first`.

    `deltas` has the drafter's KV entries that differ from `model_values`.
    """

    model_values: ModelValues
    deltas: dict[int, int]
    first: int


@dataclass(slots=True)
class CachedBlocks:
    """Expected state of the block pool: reference counts, free blocks, cached blocks.

    `empty` ends with the next block to give out, `idle` starts with the next to evict.

    `prefix_of` has the number of the prefix that a cached block ends, 0 for any other block.
    """

    num_holders: list[int]
    prefix_of: list[int]
    empty: list[int]
    idle: list[int] = field(default_factory=list)
    block_of: dict[int, int] = field(default_factory=dict)
    contents: dict[int, BlockContents | None] = field(default_factory=dict)

    @property
    def num_free(self) -> int:
        return len(self.empty) + len(self.idle)

    def copy(self) -> "CachedBlocks":
        return CachedBlocks(
            [*self.num_holders], [*self.prefix_of], [*self.empty], [*self.idle], {**self.block_of}, {**self.contents}
        )

    def next_ones(self, count: int) -> tuple[int, ...]:
        from_empty = min(count, len(self.empty))
        return (*self.empty[::-1][:from_empty], *self.idle[: count - from_empty])

    def claim(self, blocks: Sequence[int]) -> None:
        """Allocate blocks; if one of them is cached, it is evicted."""
        for block in blocks:
            if block in self.empty:
                self.empty.remove(block)
            else:
                self.idle.remove(block)
                del self.block_of[self.prefix_of[block]]
                del self.contents[block]
                self.prefix_of[block] = 0
            self.num_holders[block] = 1

    def chain(self, prefixes: Sequence[int]) -> tuple[int, ...]:
        """Return the blocks of the longest cached prefix; `prefixes` has one number per full block."""
        length = next((at for at, each in enumerate(prefixes) if each not in self.block_of), len(prefixes))
        return tuple(self.block_of[each] for each in prefixes[:length])

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each cached block of a prefix-cache hit."""
        for block in blocks:
            if block in self.idle:
                self.idle.remove(block)
            self.num_holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a reference to each block; unreferenced cached blocks become idle."""
        for block in reversed(blocks):
            self.num_holders[block] -= 1
            if not self.num_holders[block]:
                (self.idle if self.prefix_of[block] else self.empty).append(block)

    def register(self, block: int, prefix: int, contents: BlockContents | None) -> None:
        """Register a full block under its prefix number, unless a block has that number."""
        if prefix not in self.block_of:
            self.block_of[prefix], self.prefix_of[block] = block, prefix
            self.contents[block] = contents

    def reset(self) -> None:
        self.empty += self.idle
        self.idle = []
        self.prefix_of = [0] * len(self.prefix_of)
        self.block_of, self.contents = {}, {}


def cached_blocks(num_blocks: int) -> CachedBlocks:
    """Return a pool of empty blocks; the highest block id is allocated first."""
    return CachedBlocks([0] * num_blocks, [0] * num_blocks, list(range(num_blocks)))
