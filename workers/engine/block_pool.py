"""Block pool: a stack of free block (or state slot) indexes.

Used for KV-cache blocks and for recurrent state slots.
"""

from collections.abc import Sequence


class Pool:
    """A stack of free block or slot indexes: the last one released is allocated first.

    Immediate reuse is the hardest case for steps still in flight.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size))
        self._is_free = [True] * size

    @property
    def num_free(self) -> int:
        """Number of free indexes."""
        return len(self._free)

    def take(self, count: int) -> tuple[int, ...] | None:
        """Take `count` free indexes; None if there are fewer."""
        if count > len(self._free):
            return None
        taken = tuple(self._free.pop() for _ in range(count))
        for index in taken:
            assert self._is_free[index], f"{index} was given out twice"
            self._is_free[index] = False
        return taken

    def release(self, indexes: Sequence[int]) -> None:
        """Put indexes back on the stack."""
        for index in indexes:
            assert not self._is_free[index], f"{index} was released twice"
            self._is_free[index] = True
        self._free.extend(indexes)
