"""vLLM's coordinator of data-parallel ranks as a host thread: its sockets are queues of this process.

A data-parallel rank is an engine with its own scheduler. Between two *waves* of requests all ranks are idle. A request
for one idle rank must wake the others, because ranks compute experts together: the front end tells the coordinator,
and the coordinator sends all other ranks the message that starts a wave.
"""

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from vllm.v1.engine import EngineCoreRequestType, coordinator
from vllm.v1.serial_utils import MsgpackEncoder

from workers.simulated_torch.native import NativeClock, native
from workers.targets.child.inside.ranks import Rank
from workers.targets.vllm.inside.ranks.queues import hosts

# vLLM's coordinator waits for one such message of each rank, a subscription.
_SUBSCRIBED = b"\x01"


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


class Coordinator:
    """Thread of vLLM's coordinator, and the front end's view of it: the current wave, and whether ranks run."""

    def __init__(self, cores: Sequence[Any]) -> None:
        self._cores, self._encoder = cores, MsgpackEncoder()
        self.wave, self.is_running = 0, False
        self._published: deque[bytes] = deque()
        self._sockets = {
            "front": Socket(self._published.append),
            "from ranks": Socket(lambda message: None),
            "to ranks": Socket(self._send_to_ranks),
        }
        self.rank = Rank(len(cores))
        hosts().start("coordinator", self.rank, self._serve)

    def _serve(self) -> None:
        native().enter_rank(0)
        coordinator.make_zmq_socket = lambda path, **options: self._sockets[path]
        coordinator.zmq = SimpleNamespace(Poller=Poller, POLLIN=1, XPUB=1, PULL=2, Context=lambda: None)
        for _ in self._cores:
            self._sockets["to ranks"].put(_SUBSCRIBED)
        coordinator.DPCoordinatorProc(len(self._cores)).process_input_socket("front", "from ranks", "to ranks")

    @property
    def has_received_all(self) -> bool:
        """Whether no message to the coordinator is under way."""
        return not any(each.inbox for each in self._sockets.values())

    @property
    def is_idle(self) -> bool:
        """Whether no message from or to the coordinator is under way."""
        return self.has_received_all and not self._published

    def report(self, core: Any, outputs: Any) -> None:
        """Send the coordinator what a rank reports: its load, the start or the end of a wave."""
        outputs.engine_index = core.engine_index
        self._sockets["from ranks"].put(b"".join(map(bytes, self._encoder.encode(outputs))))

    def announce(self, rank: int) -> None:
        """Tell the coordinator of a request for a rank, as a front end does that believes all ranks to be idle."""
        if not self.is_running:
            self.is_running = True
            self._sockets["front"].put(msgspec.msgpack.encode((rank, self.wave)))

    def receive(self) -> None:
        """Let the front end receive what the coordinator has published."""
        while self._published:
            _, self.wave, self.is_running = msgspec.msgpack.decode(self._published.popleft())

    def _send_to_ranks(self, message: Any) -> None:
        if isinstance(message, tuple):
            wave, besides = msgspec.msgpack.decode(message[1])
            for core in self._cores:
                core.input_queue.put_nowait((EngineCoreRequestType.START_DP_WAVE, (wave, besides)))


class Outbox:
    """Output queue of a rank: outputs of requests are for the front end.

    What is for the coordinator is given to `report`, the answer to a control call to `answer`.
    """

    def __init__(self, report: Callable[[Any], None], answer: Callable[[Any], None]) -> None:
        self._outputs: deque[tuple[int, Any]] = deque()
        self._report, self._answer = report, answer

    def put_nowait(self, item: tuple[int, Any]) -> None:
        client, outputs = item
        if client < 0:
            self._report(outputs)
        elif outputs.utility_output is not None:
            self._answer(outputs.utility_output)
        else:
            self._outputs.append(item)

    def get_nowait(self) -> tuple[int, Any]:
        return self._outputs.popleft()

    def qsize(self) -> int:
        return len(self._outputs)
