"""Sockets of vLLM's coordinator of data-parallel ranks: queues of this process."""

from collections import deque
from collections.abc import Callable
from typing import Any

from workers.simulated_torch.native import NativeClock, native
from workers.targets.vllm.inside.ranks.queues import hosts


class Socket:
    """Socket of the coordinator: it receives from `inbox`, and sends by `send`."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self.inbox: deque[tuple[NativeClock, bytes]] = deque()
        self.send = self.send_multipart = send

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: queues need no end."""

    def put(self, message: bytes) -> None:
        """Send a message to the coordinator."""
        self.inbox.append((native().host_clock(), message))
        hosts().offer()

    def recv(self) -> bytes:
        hosts().wait(lambda: bool(self.inbox), "a message to the coordinator")
        clock, message = self.inbox.popleft()
        native().join_host_clock(clock)
        return message


class Poller:
    """Waits for messages of several sockets. No time passes, so a timeout never ends the wait."""

    def __init__(self) -> None:
        self._sockets: list[Socket] = []

    def register(self, socket: Socket, flags: int) -> None:
        self._sockets.append(socket)

    def poll(self, timeout: int | None = None) -> list[tuple[Socket, int]]:
        hosts().wait(lambda: any(each.inbox for each in self._sockets), "a message to the coordinator")
        return [(each, 1) for each in self._sockets if each.inbox]


class Sockets:
    """What the coordinator uses of the module `zmq`."""

    Poller = Poller
    POLLIN, XPUB, PULL = 1, 9, 7
    # Only an annotation.
    Socket = Socket

    @staticmethod
    def Context() -> None:
        """Return None: a queue needs no context."""


def open_socket(path: Socket, ctx: None, socket_type: int, *, bind: bool) -> Socket:
    """Return the socket that is given in place of an address."""
    return path
