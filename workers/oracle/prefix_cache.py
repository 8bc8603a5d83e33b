"""Reference prefix cache: which blocks are free, which can be found again by their hash, and what they must hold.

Blocks without contents are handed out first, the one given back last before the others; then those that nobody holds
lose their contents, the least recently used first. A request gives its blocks back from the last one on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from workers.oracle.tape import Tape


@dataclass(frozen=True, slots=True)
class Contents:
    """Whose values a block holds, and where they begin; `deltas` are drafter's words that differ from the tape's."""

    tape: Tape
    deltas: dict[int, int]
    first: int


@dataclass(slots=True)
class CachedBlocks:
    """All blocks of a pool. `empty` ends with the next one to hand out, `idle` begins with the next one to lose."""

    num_holders: list[int]
    hash_of: list[int]
    empty: list[int]
    idle: list[int] = field(default_factory=list)
    block_of: dict[int, int] = field(default_factory=dict)
    contents: dict[int, Contents | None] = field(default_factory=dict)

    @property
    def num_free(self) -> int:
        """Number of blocks nobody holds."""
        return len(self.empty) + len(self.idle)

    def copy(self) -> "CachedBlocks":
        """Return another one that may be changed."""
        return CachedBlocks(
            [*self.num_holders], [*self.hash_of], [*self.empty], [*self.idle], {**self.block_of}, {**self.contents}
        )

    def next_ones(self, count: int) -> tuple[int, ...]:
        """Return the blocks that are handed out next."""
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
        """Return the blocks of the longest chain of hashes that can be found."""
        length = next((at for at, each in enumerate(hashes) if each not in self.block_of), len(hashes))
        return tuple(self.block_of[each] for each in hashes[:length])

    def share(self, blocks: Sequence[int]) -> None:
        """Let one more request hold blocks that can be found."""
        for block in blocks:
            if block in self.idle:
                self.idle.remove(block)
            self.num_holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take blocks back from one request."""
        for block in reversed(blocks):
            self.num_holders[block] -= 1
            if not self.num_holders[block]:
                (self.idle if self.hash_of[block] else self.empty).append(block)

    def register(self, block: int, content: int, contents: Contents | None) -> None:
        """Let a block be found by the hash of its contents, unless another one is."""
        if content not in self.block_of:
            self.block_of[content], self.hash_of[block] = block, content
            self.contents[block] = contents

    def reset(self) -> None:
        """Forget all contents."""
        self.empty += self.idle
        self.idle = []
        self.hash_of = [0] * len(self.hash_of)
        self.block_of, self.contents = {}, {}


def cached_blocks(num_blocks: int) -> CachedBlocks:
    """Return a pool whose blocks are all empty; the highest number is handed out first."""
    return CachedBlocks([0] * num_blocks, [0] * num_blocks, list(range(num_blocks)))
