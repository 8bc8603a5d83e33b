"""Bounded KV store of blocks, each found by all tokens from the prompt's start to its end.

A block holds the KV entries of its own tokens, or the recurrent state after all of them. With a drafter whose entry of
a block's last token depends on the next token, blocks of KV entries are found by that token as well.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

# A KV-cache group (0: attention), and all tokens of a prefix: up to a block end, and those after it that the drafter's
# KV entries depend on.
Key: TypeAlias = tuple[int, tuple[int, ...]]


class Store:
    """Slots of a KV store: each is free, being written, or holds a block."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots))
        # Least recently used first.
        self._held: OrderedDict[Key, int] = OrderedDict()
        self._writing: set[Key] = set()
        self._pins: Counter[int] = Counter()
        self.num_evicted = 0

    @property
    def num_pinned(self) -> int:
        return sum(self._pins.values())

    @property
    def num_writing(self) -> int:
        return len(self._writing)

    def has(self, key: Key) -> bool:
        """Return whether a block is stored or being written."""
        return key in self._held or key in self._writing

    def prefix(self, keys: Iterable[Key]) -> list[int]:
        """Return the slots of a request's stored blocks, up to the first key not stored."""
        found = []
        for key in keys:
            slot = self._held.get(key)
            if slot is None:
                break
            found.append(slot)
        return found

    def states(self, prefix: Sequence[int], groups: range) -> list[int] | None:
        """Return the slots of the states after a prefix, one per group; None if one is missing."""
        found = [self._held.get((group, tuple(prefix))) for group in groups]
        return None if None in found else [slot for slot in found if slot is not None]

    def pin(self, slots: Iterable[int]) -> None:
        """Pin slots against eviction, and mark them as most recently used."""
        for slot in slots:
            self._pins[slot] += 1
            key = next(key for key, held in self._held.items() if held == slot)
            self._held.move_to_end(key)

    def unpin(self, slots: Iterable[int]) -> None:
        for slot in slots:
            assert self._pins[slot] > 0, f"slot {slot} is not pinned"
            self._pins[slot] -= 1

    def write(self, key: Key) -> int | None:
        """Return a slot for a new block, evicting the least recently used; None if all are pinned."""
        assert not self.has(key), "a block has one slot"
        if not self._free:
            old = next((key for key, slot in self._held.items() if not self._pins[slot]), None)
            if old is None:
                return None
            self._free.append(self._held.pop(old))
            self.num_evicted += 1
        self._writing.add(key)
        return self._free.pop(0)

    def written(self, key: Key, slot: int, is_kept: bool) -> None:
        """End the writing of a block: keep it in the store, or free its slot."""
        self._writing.remove(key)
        if is_kept:
            self._held[key] = slot
        else:
            self._free.append(slot)
