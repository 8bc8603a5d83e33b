"""Block pool with a prefix cache: blocks outlive their request and are found by a hash of all tokens so far."""

from collections.abc import Sequence

from workers.engine.block_pool import Pool


# The life of a block; each state names where it stands:
#
#     ┌────────────────────────── reset ─────────────────────────────┐
#     ▼                                                              │
#   free ── take ──► held ── register ──► held and known ◄─ share ─ idle: known, not held
#   _free            references           references, _block_of      idle, _block_of
#     ▲                │                    └────── last release ──► ▲ │
#     └─ last release ─┘                                               └─ take, once none is free: its hash is forgotten
#
# No transition waits for the device: the step that hands a block out poisons it, in stream order behind its readers.
class CachingPool(Pool):
    """A pool whose blocks have reference counts, and contents that may be found again by their hash.

    Blocks without contents are handed out first, the one given back last before the others. Then those with contents
    that no request holds are evicted, the least recently used first; of one request the last block goes first.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.references = [0] * size
        self.hash_of: list[int | None] = [None] * size
        self.idle: dict[int, None] = {}
        self._block_of: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free) + len(self.idle)

    def take(self, count: int) -> tuple[int, ...] | None:
        """Take `count` blocks, evicting contents where none is free; None if there are fewer."""
        if count > self.num_free:
            return None
        taken = tuple(self._free.pop() if self._free else self._evict() for _ in range(count))
        for block in taken:
            assert not self.references[block], f"block {block} was handed out while somebody holds it"
            self.references[block] = 1
        return taken

    def _evict(self) -> int:
        block = next(iter(self.idle))
        assert not self.references[block], f"block {block} is evicted while {self.references[block]} hold it"
        assert self.hash_of[block] is not None, f"block {block} is evicted, and has no contents to lose"
        del self.idle[block]
        self._forget(block)
        return block

    def release(self, indexes: Sequence[int]) -> None:
        """Take one reference from each block, from the last one on."""
        for block in reversed(indexes):
            self.references[block] -= 1
            assert self.references[block] >= 0, f"block {block} was given back too often"
            if self.references[block]:
                continue
            if self.hash_of[block] is None:
                self._free.append(block)
            else:
                self.idle[block] = None

    def find(self, hashes: Sequence[int]) -> list[int]:
        """Return the blocks of the longest chain of hashes that are known, from the first one on."""
        found = []
        for each in hashes:
            if each not in self._block_of:
                break
            found.append(self._block_of[each])
        return found

    def has_room(self, shared: Sequence[int], count: int) -> bool:
        """Tell whether `count` blocks are left when `shared` are held: idle ones among them cannot be handed out."""
        return count <= self.num_free - sum(not self.references[block] for block in shared)

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each block."""
        for block in blocks:
            assert self.hash_of[block] is not None, f"block {block} is taken over without contents"
            if not self.references[block]:
                assert block in self.idle, f"block {block} is taken over, and nobody has it"
                del self.idle[block]
            self.references[block] += 1

    def register(self, block: int, content: int) -> None:
        """Register a held block under its hash, unless another block has the same contents."""
        assert self.references[block], f"block {block} is registered, but nobody holds it"
        if content not in self._block_of:
            self._block_of[content] = block
            self.hash_of[block] = content

    def reset(self) -> list[int]:
        """Forget all contents and return the idle blocks that had some."""
        idle = list(self.idle)
        self.idle.clear()
        self._block_of.clear()
        self.hash_of = [None] * self.size
        self._free.extend(idle)
        held = self.size - self.references.count(0)
        assert len(self._free) + held == self.size, f"{len(self._free)} free and {held} held of {self.size} blocks"
        return idle

    def _forget(self, block: int) -> None:
        content = self.hash_of[block]
        if content is not None:
            known = self._block_of.get(content)
            assert known == block, f"block {block} has contents that are found in block {known}"
            del self._block_of[content]
            self.hash_of[block] = None
