"""Read device tensors as of a point of the stream, without adding any order between tasks.

Examples are the draft tokens, block tables and slot mappings of a step. Without a device, tensors are read immediately.
On the simulated device, a task on the engine's own stream reads them. On a GPU, that stream copies them to pinned
memory, and they are delivered once the copy is complete; host values, such as the scheduler's plan, wait for the copies
that were enqueued before them, so that all values are delivered in launch order.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch

from workers.simulated_torch.device import activate
from workers.targets.child.inside.simulated_device import access_message, skip_files
from workers.targets.child.messages import Message

_WRITERS_MAX = 3

Parts: TypeAlias = Sequence[torch.Tensor]
# Receives tensors on the host, by name.
Receive: TypeAlias = Callable[[Mapping[str, Parts]], None]


class Readback(Protocol):
    """Reads tensors for observers; this base class serves a device that runs ops at once."""

    @abstractmethod
    def read(self, tensors: Mapping[str, Parts], receive: Receive) -> None:
        """Call `receive` with the values that the tensors have at this point of the stream."""

    def writers(self, parts: Parts) -> list[Message]:
        """Return the last writers of the tensors' memory, newest first; empty if not recorded."""
        return []

    def add_host_values(self, receive: Callable[[], None]) -> None:
        """Call `receive` for host values, after all reads that were requested before it."""
        receive()

    def call_when_reached(self, receive: Callable[[], None]) -> None:
        """Call `receive` once the device has reached this point of the current stream."""
        receive()

    def deliver_arrived(self) -> None:
        """Pass the values whose copies are complete to their receivers."""
        return

    def finish(self) -> None:
        """Wait for all values, and pass them to their receivers."""
        return


class ImmediateReadback(Readback):
    """Readback on a CPU, which runs every operator immediately."""

    def read(self, tensors: Mapping[str, Parts], receive: Receive) -> None:
        receive(tensors)


class TaskReadback(Readback):
    """Readback by tasks of the simulated device, which the race detector ignores.

    Files of `helpers` have functions that copy their arguments; they are skipped in the writers' stacks.
    """

    def __init__(self, helpers: Sequence[str] = ()) -> None:
        self._helpers = helpers

    def read(self, tensors: Mapping[str, Parts], receive: Receive) -> None:
        device = activate()
        views = {
            name: [part if part.device.type == "cpu" else device.host_view(part) for part in parts]
            for name, parts in tensors.items()
        }
        device.enqueue("observe", lambda: receive(views))

    def call_when_reached(self, receive: Callable[[], None]) -> None:
        activate().enqueue("observe", receive)

    def writers(self, parts: Parts) -> list[Message]:
        device = activate()
        found = [access for part in parts if part.device.type != "cpu" for access in device.writers(part)]
        return [access_message(access, skip_files(access.lines, self._helpers)) for access in found[:_WRITERS_MAX]]


class CopyReadback(Readback):
    """Readback by asynchronous copies from a GPU to pinned memory.

    `deliver_arrived` waits for no copy, `finish` for all.
    """

    def __init__(self) -> None:
        # Pairs of an event, after which the copies are complete (None for host values), and a callback.
        self._coming: deque[tuple[Any, Callable[[], None]]] = deque()

    def read(self, tensors: Mapping[str, Parts], receive: Receive) -> None:
        copies = {name: [_host_copy(part) for part in parts] for name, parts in tensors.items()}
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._coming.append((event, partial(receive, copies)))

    def add_host_values(self, receive: Callable[[], None]) -> None:
        self._coming.append((None, receive))

    def deliver_arrived(self) -> None:
        while self._coming and (self._coming[0][0] is None or self._coming[0][0].query()):
            self._coming.popleft()[1]()

    def finish(self) -> None:
        while self._coming:
            event, receive = self._coming.popleft()
            if event is not None:
                event.synchronize()
            receive()


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a host copy of a tensor; a GPU writes it to pinned memory, in stream order."""
    if tensor.device.type == "cpu":
        return tensor.clone()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.copy_(tensor, non_blocking=True)
    return copy


def readback_on(device: str, helpers: Sequence[str] = ()) -> Readback:
    """Return the readback for a device; `helpers` are files to skip in the writers' stacks."""
    match device:
        case "sim":
            return TaskReadback(helpers)
        case "cuda":
            return CopyReadback()
        case _:
            return ImmediateReadback()
