"""Readback: values of tensors as they are once the device has come so far, told without ordering anything.

Where there is no device they are read at once. On the simulated one a task of the engine's own stream reads them; on a
GPU they are copied to pinned memory by that stream, and told once the copy is there. What the host has to tell waits
there for what was launched before it: all is told in the order of launches.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch

from workers.simulated_torch.device import activate
from workers.targets.child.inside.simulated_device import access_message, beyond
from workers.targets.child.messages import Message

_WRITERS_MAX = 3

Parts: TypeAlias = Sequence[torch.Tensor]
# Is told tensors on the host, by name.
Told: TypeAlias = Callable[[Mapping[str, Parts]], None]


class Readback(Protocol):
    """Way in which tensors of a device are read."""

    @abstractmethod
    def read(self, tensors: Mapping[str, Parts], told: Told) -> None:
        """Have tensors told as they are once the device has come so far."""

    def writers(self, parts: Parts) -> list[Message]:
        """Return who wrote last what lies in tensors, newest first, where that is kept."""
        return []

    def tell(self, told: Callable[[], None]) -> None:
        """Have the host's part told in its place."""
        told()

    def in_turn(self, told: Callable[[], None]) -> None:
        """Have something told in its turn with tensors that are read."""
        told()

    def arrived(self) -> None:
        """Tell what has come by now."""
        return

    def finish(self) -> None:
        """Wait for all that is to come, and tell it."""
        return


class AtOnce(Readback):
    """Readback without a device."""

    def read(self, tensors: Mapping[str, Parts], told: Told) -> None:
        told(tensors)


class ByTasks(Readback):
    """Readback by tasks of the simulated device, which are no accesses to the lanes that are judged.

    Of who wrote, files of `helpers`, whose functions copy whatever they are given, are passed over.
    """

    def __init__(self, helpers: Sequence[str] = ()) -> None:
        self._helpers = helpers

    def read(self, tensors: Mapping[str, Parts], told: Told) -> None:
        device = activate()
        views = {
            name: [part if part.device.type == "cpu" else device.host_view(part) for part in parts]
            for name, parts in tensors.items()
        }
        device.enqueue("observe", lambda: told(views))

    def in_turn(self, told: Callable[[], None]) -> None:
        activate().enqueue("observe", told)

    def writers(self, parts: Parts) -> list[Message]:
        device = activate()
        found = [access for part in parts if part.device.type != "cpu" for access in device.writers(part)]
        return [access_message(access, beyond(access.lines, self._helpers)) for access in found[:_WRITERS_MAX]]


class ByCopies(Readback):
    """Readback by copies of a GPU to pinned memory: `arrived` waits for none, `finish` for all."""

    def __init__(self) -> None:
        # With the event behind what it waits for: of the host's part none.
        self._coming: deque[tuple[Any, Callable[[], None]]] = deque()

    def read(self, tensors: Mapping[str, Parts], told: Told) -> None:
        copies = {name: [_copied(part) for part in parts] for name, parts in tensors.items()}
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._coming.append((event, partial(told, copies)))

    def tell(self, told: Callable[[], None]) -> None:
        self._coming.append((None, told))

    def arrived(self) -> None:
        while self._coming and (self._coming[0][0] is None or self._coming[0][0].query()):
            self._coming.popleft()[1]()

    def finish(self) -> None:
        while self._coming:
            event, told = self._coming.popleft()
            if event is not None:
                event.synchronize()
            told()


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the host, which the current stream makes of what lies on a GPU."""
    if tensor.device.type == "cpu":
        return tensor.clone()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.copy_(tensor, non_blocking=True)
    return copy


def readback_on(device: str, helpers: Sequence[str] = ()) -> Readback:
    """Return how tensors of a device are read; who wrote is told but for files of `helpers`."""
    match device:
        case "sim":
            return ByTasks(helpers)
        case "cuda":
            return ByCopies()
        case _:
            return AtOnce()
