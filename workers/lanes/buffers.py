"""Flat buffers and spans of them: the memory of both machines, an array or a tensor each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workers.lanes.lane import Span


class FlatSpan:
    """A range [start, stop) of a flat buffer, as an op or the host sees it; `watched` belongs to the watcher.

    Ops see the `tensor`, where buffers have one.
    """

    __slots__ = ("_readable", "_writable", "buffer", "key", "tensor", "watched")

    def __init__(self, buffer: "FlatBuffer", start: int, stop: int) -> None:
        self.buffer = buffer
        self.key = (start, stop)
        self.watched: Any = None
        self.tensor: Any = None if buffer.tensor is None else buffer.tensor[start:stop]
        self._writable = self._readable = buffer._data[start:stop]
        if isinstance(self._writable, np.ndarray):
            self._readable = self._writable.view()
            self._readable.flags.writeable = False


class FlatBuffer:
    """Flat memory of one place: the device's, or pinned memory of the host.

    Device memory is opaque to the host; pinned memory is reached through `Machine.host`. `lane` is set for memory that
    one lane alone may use, `whole` for memory that is written as a whole or not at all. `accesses` belongs to the
    watcher, `writers` to the blame. `data` is an array, or a tensor where the host cannot reach the memory; `tensor` is
    the same memory for ops that take tensors, `all` the span of the whole.
    """

    __slots__ = ("_data", "_spans", "accesses", "all", "lane", "name", "pinned", "tensor", "whole", "writers")

    def __init__(
        self, name: str, data: Any, pinned: bool, lane: str | None = None, whole: bool = False, tensor: Any = None
    ) -> None:
        assert data.ndim == 1, f"buffer {name} must be flat"
        self.name = name
        self.pinned = pinned
        self.lane = lane
        self.whole = whole
        self.accesses: Any = None
        self.writers: tuple[str, ...] = ()
        self.tensor = tensor
        self._data = data
        self._spans: dict[tuple[int, int], FlatSpan] = {}
        self.all = self.span(0, len(data))

    def span(self, start: int, stop: int) -> FlatSpan:
        """Return the range [start, stop); the same object for the same range."""
        found = self._spans.get((start, stop))
        if found is None:
            assert 0 <= start <= stop <= len(self._data), f"{self.name}[{start}:{stop}] of {len(self._data)}"
            found = self._spans[start, stop] = FlatSpan(self, start, stop)
        return found


def flat_spans(spans: Sequence[Span]) -> list[FlatSpan]:
    """Return spans that a machine of ours has made as what they are.

    Raises:
        TypeError: a span belongs to another machine.
    """
    flat = [span for span in spans if isinstance(span, FlatSpan)]
    if len(flat) != len(spans):
        raise TypeError(f"spans of another kind of machine are captured: {[*spans]}")
    return flat
