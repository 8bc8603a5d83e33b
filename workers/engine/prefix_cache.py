"""Block pool with a prefix cache, which finds a full block by the hash of its token prefix."""

from collections.abc import Sequence

from workers.engine.block_pool import Pool


# The life of a block; each state lists the fields that record it:
#
#    ┌────────────────────────── reset ─────────────────────────────┐
#    ▼                                                              │
#   free ── take ──► held ── register ──► held and cached ◄─ share ─ idle: cached, not held
#   _free            references           references, _block_of      idle, _block_of
#    ▲                │                    └────── last release ──►   ▲ │
#    └─ last release ─┘                                               └─ take, once none is free: its hash is forgotten
#
# No transition waits for the device: the step that gives a block out poisons it, in stream order after its readers.
class CachingPool(Pool):
    """A pool of reference-counted blocks; idle cached blocks can be found by hash.

    Blocks without contents are given out first, last released first. Then cached blocks that no request holds are
    evicted, least recently used first; blocks of one request are evicted from its last block on.
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
        """Allocate `count` blocks, evicting idle cached ones if necessary; None if too few exist."""
        if count > self.num_free:
            return None
        taken = tuple(self._free.pop() if self._free else self._evict() for _ in range(count))
        for block in taken:
            assert not self.references[block], f"block {block} was given out while a request holds it"
            self.references[block] = 1
        return taken

    def _evict(self) -> int:
        block = next(iter(self.idle))
        assert not self.references[block], f"block {block} was evicted with {self.references[block]} references"
        assert self.hash_of[block] is not None, f"block {block} was evicted but has no contents"
        del self.idle[block]
        self._forget(block)
        return block

    def release(self, indexes: Sequence[int]) -> None:
        """Drop one reference of each block, the last block first."""
        for block in reversed(indexes):
            self.references[block] -= 1
            assert self.references[block] >= 0, f"block {block} was released too often"
            if self.references[block]:
                continue
            if self.hash_of[block] is None:
                self._free.append(block)
            else:
                self.idle[block] = None

    def find(self, hashes: Sequence[int]) -> list[int]:
        """Return the cached blocks of the longest cached prefix of a list of block hashes."""
        found = []
        for each in hashes:
            if each not in self._block_of:
                break
            found.append(self._block_of[each])
        return found

    def has_room(self, shared: Sequence[int], count: int) -> bool:
        """Return whether `count` blocks are free once the `shared` ones are in use.

        Idle ones among them do not count.
        """
        return count <= self.num_free - sum(not self.references[block] for block in shared)

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each block of a prefix-cache hit."""
        for block in blocks:
            assert self.hash_of[block] is not None, f"block {block} is shared but has no contents"
            if not self.references[block]:
                assert block in self.idle, f"block {block} is shared, has no references, and is not idle"
                del self.idle[block]
            self.references[block] += 1

    def register(self, block: int, content: int) -> None:
        """Register a full block by its hash, unless an equal block is registered."""
        assert self.references[block], f"block {block} is registered but has no references"
        if content not in self._block_of:
            self._block_of[content] = block
            self.hash_of[block] = content

    def reset(self) -> list[int]:
        """Unregister all blocks; return the idle ones that were registered."""
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
            assert known == block, f"block {block} has a hash that is registered for block {known}"
            del self._block_of[content]
            self.hash_of[block] = None
