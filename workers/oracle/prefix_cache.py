"""Reference prefix cache: free blocks, blocks cached by hash, and their expected contents.

Blocks without contents are handed out first, the one freed last before the others; then unreferenced cached blocks are
evicted, the least recently used first. A request frees its blocks from the last one on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from workers.oracle.tape import Tape


@dataclass(frozen=True, slots=True)
class BlockContents:
    """Expected contents of a block: a tape from position `first` on, with drafter words that differ (`deltas`)."""

    tape: Tape
    deltas: dict[int, int]
    first: int


@dataclass(slots=True)
class CachedBlocks:
    """All blocks of a pool. `empty` ends with the next one to hand out, `idle` begins with the next one to evict."""

    num_holders: list[int]
    hash_of: list[int]
    empty: list[int]
    idle: list[int] = field(default_factory=list)
    block_of: dict[int, int] = field(default_factory=dict)
    contents: dict[int, BlockContents | None] = field(default_factory=dict)

    @property
    def num_free(self) -> int:
        return len(self.empty) + len(self.idle)

    def copy(self) -> "CachedBlocks":
        return CachedBlocks(
            [*self.num_holders], [*self.hash_of], [*self.empty], [*self.idle], {**self.block_of}, {**self.contents}
        )

    def next_ones(self, count: int) -> tuple[int, ...]:
        from_empty = min(count, len(self.empty))
        return (*self.empty[::-1][:from_empty], *self.idle[: count - from_empty])

    def claim(self, blocks: Sequence[int]) -> None:
        """Hand out blocks; those that had contents lose them."""
        for block in blocks:
            if block in self.empty:
                self.empty.remove(block)
            else:
                self.idle.remove(block)
                del self.block_of[self.hash_of[block]]
                del self.contents[block]
                self.hash_of[block] = 0
            self.num_holders[block] = 1

    def chain(self, hashes: Sequence[int]) -> tuple[int, ...]:
        """Return the blocks of the longest prefix of hashes that is cached."""
        length = next((at for at, each in enumerate(hashes) if each not in self.block_of), len(hashes))
        return tuple(self.block_of[each] for each in hashes[:length])

    def share(self, blocks: Sequence[int]) -> None:
        """Add one request's references to cached blocks."""
        for block in blocks:
            if block in self.idle:
                self.idle.remove(block)
            self.num_holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one request's references to blocks."""
        for block in reversed(blocks):
            self.num_holders[block] -= 1
            if not self.num_holders[block]:
                (self.idle if self.hash_of[block] else self.empty).append(block)

    def register(self, block: int, content: int, contents: BlockContents | None) -> None:
        """Register a block under the hash of its contents, unless another block has it."""
        if content not in self.block_of:
            self.block_of[content], self.hash_of[block] = block, content
            self.contents[block] = contents

    def reset(self) -> None:
        self.empty += self.idle
        self.idle = []
        self.hash_of = [0] * len(self.hash_of)
        self.block_of, self.contents = {}, {}


def cached_blocks(num_blocks: int) -> CachedBlocks:
    """Return a pool whose blocks are all empty; the highest number is handed out first."""
    return CachedBlocks([0] * num_blocks, [0] * num_blocks, list(range(num_blocks)))
