"""Bounded store of blocks, by the tokens up to their ends: which slot holds which, and which may be reused.

A block holds the entries of its own tokens, or a state behind all of them.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

# A group of layers, 0 that of attention, and all tokens of a prefix that ends with a block.
Key: TypeAlias = tuple[int, tuple[int, ...]]


class Store:
    """Slots of a store; a slot is free, written, or holds a block, whose readers pin it."""

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

    def knows(self, key: Key) -> bool:
        """Tell whether a block is held or being written."""
        return key in self._held or key in self._writing

    def prefix(self, tokens: Sequence[int], size: int, blocks: range) -> list[int]:
        """Return the slots of a request's blocks of some size, up to the first that is not held."""
        found = []
        for index in blocks:
            slot = self._held.get((0, tuple(tokens[: (index + 1) * size])))
            if slot is None:
                break
            found.append(slot)
        return found

    def states(self, prefix: Sequence[int], groups: range) -> list[int] | None:
        """Return the slots of the states behind a prefix, of some groups of layers; None if one of them is not held."""
        found = [self._held.get((group, tuple(prefix))) for group in groups]
        return None if None in found else [slot for slot in found if slot is not None]

    def pin(self, slots: Iterable[int]) -> None:
        """Keep slots from being reused, and count them as used now."""
        for slot in slots:
            self._pins[slot] += 1
            key = next(key for key, held in self._held.items() if held == slot)
            self._held.move_to_end(key)

    def unpin(self, slots: Iterable[int]) -> None:
        for slot in slots:
            assert self._pins[slot] > 0, f"slot {slot} is not pinned"
            self._pins[slot] -= 1

    def write(self, key: Key) -> int | None:
        """Return a slot to write a block to, if need be that of the one used least recently; None if all are used."""
        assert not self.knows(key), "a block has one slot"
        if not self._free:
            old = next((key for key, slot in self._held.items() if not self._pins[slot]), None)
            if old is None:
                return None
            self._free.append(self._held.pop(old))
            self.num_evicted += 1
        self._writing.add(key)
        return self._free.pop(0)

    def written(self, key: Key, slot: int, is_kept: bool) -> None:
        """Hold a block that was written, or free its slot."""
        self._writing.remove(key)
        if is_kept:
            self._held[key] = slot
        else:
            self._free.append(slot)
