"""Flat buffers and spans of them: the memory of both machines, an array or a tensor each."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from workers.lanes.lane import Span, Writer


@cache
def dtype_name(dtype: Any) -> str:
    """Return the name of an array's or a tensor's dtype, as NumPy names it."""
    return str(dtype).removeprefix("torch.")


class FlatSpan:
    """A range of a flat buffer: a `Span` of both machines.

    Ops are given its `input` where they only read, else its `output`: the `tensor`, where buffers have one. `place` is
    the one span of this range that the watcher knows, whatever else it is called: of a buffer that is written as a
    whole, all of it.
    """

    __slots__ = (
        "_readable",
        "_writable",
        "buffer",
        "described",
        "input",
        "key",
        "name",
        "output",
        "place",
        "tensor",
        "watched",
    )

    def __init__(self, buffer: "FlatBuffer", start: int, stop: int, name: str, place: "FlatSpan | None") -> None:
        self.buffer = buffer
        self.place = place if place is not None else self
        self.name = name or buffer.span_name
        self.key = (start, stop)
        # What an op checks of it: name, dtype and size.
        self.described = (self.name, buffer.dtype, stop - start)
        self.watched: Any = None
        self.output = self._writable = buffer._data[start:stop]
        self.input = self._readable = self._writable if buffer._shown is None else buffer._shown[start:stop]
        self.tensor: Any = None
        if buffer.tensor is not None:
            self.input = self.output = self.tensor = buffer.tensor[start:stop]


class FlatBuffer:
    """Flat memory of one place: a `Buffer` of both machines.

    `data` is an array, or a tensor where the host cannot reach the memory; `tensor` is the same memory for ops that
    take tensors.
    """

    __slots__ = (
        "_data",
        "_shown",
        "_spans",
        "accesses",
        "all",
        "dtype",
        "lane",
        "name",
        "pinned",
        "span_name",
        "tensor",
        "whole",
        "writers",
    )

    def __init__(
        self, name: str, data: Any, pinned: bool, lane: str | None = None, whole: bool = False, tensor: Any = None
    ) -> None:
        assert data.ndim == 1, f"buffer {name} must be flat"
        self.name = name
        self.pinned = pinned
        self.lane = lane
        self.whole = whole
        self.accesses: Any = None
        self.writers: tuple[Writer, ...] = ()
        self.tensor = tensor
        self._data = data
        # A read-only view of the same memory; None for a tensor.
        self._shown: Any = None
        if isinstance(data, np.ndarray):
            self._shown = data.view()
            self._shown.flags.writeable = False
        self._spans: dict[tuple[int, int, str], FlatSpan] = {}
        self.dtype = dtype_name(data.dtype)
        # The slots of a ring share a name.
        self.span_name = name.partition("[")[0]
        self.all = self.span(0, len(data))

    def span(self, start: int, stop: int, name: str = "") -> FlatSpan:
        """Return the range [start, stop) under a name; the same object for the same range and name."""
        found = self._spans.get((start, stop, name))
        if found is None:
            assert 0 <= start <= stop <= len(self._data), f"{self.name}[{start}:{stop}] of {len(self._data)}"
            # The first span of a buffer is all of it.
            place = self.all if self.whole and self._spans else self.span(start, stop) if name else None
            found = self._spans[start, stop, name] = FlatSpan(self, start, stop, name, place)
        return found

    def close(self) -> None:
        """Forget all spans, which refer to the buffer and to each other."""
        for span in self._spans.values():
            del span.place
        self._spans.clear()
        del self.all


def flat_spans(spans: Sequence[Span]) -> list[FlatSpan]:
    """Return spans that a machine of ours has made as what they are.

    Raises:
        TypeError: a span belongs to another machine.
    """
    flat = [span for span in spans if isinstance(span, FlatSpan)]
    if len(flat) != len(spans):
        raise TypeError(f"spans of another kind of machine are captured: {[*spans]}")
    return flat
