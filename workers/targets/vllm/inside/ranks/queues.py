"""Queues between the ranks of one process, in place of vLLM's shared memory and of its threads' queues.

As between processes, a message is pickled: no rank sees a later change of an object that it has received.
"""

import pickle
import queue
from collections import deque
from collections.abc import Callable
from typing import Any

from workers.simulated_torch.native import NativeClock, native
from workers.targets.child.inside.ranks import Hosts

_HOSTS: list[Hosts] = []
# Queues of the groups of the latest engine, by the group's name: its ranks ask for the queue one after the other.
_OF_GROUPS: dict[str, "MessageQueue"] = {}


def use_hosts(hosts: Hosts) -> None:
    """Let all queues wait by these host threads."""
    _HOSTS[:] = [hosts]


def hosts() -> Hosts:
    """Return the host threads of this process, which a first engine with ranks has created."""
    return _HOSTS[0]


def forget_groups() -> None:
    """Forget the queues of groups, whose names a new engine uses again."""
    _OF_GROUPS.clear()


class MessageQueue:
    """Queue from one rank, or the engine, to `n_reader` readers; vLLM's own is shared memory that processes poll."""

    def __init__(self, n_reader: int, n_local_reader: int = 0, *arguments: Any, **options: Any) -> None:
        self._inboxes: list[deque[tuple[int | None, NativeClock, bytes]]] = [deque() for _ in range(n_reader)]
        self._reader = 0

    @staticmethod
    def create_from_handle(handle: "MessageQueue", rank: int) -> "MessageQueue":
        """Return the queue for one of its readers."""
        made = MessageQueue(0)
        made._inboxes, made._reader = handle._inboxes, rank
        return made

    @staticmethod
    def create_from_process_group(pg: Any, *arguments: Any, **options: Any) -> "MessageQueue":
        """Return the queue from the first rank of a group to the others, for the calling rank."""
        if pg.group_name not in _OF_GROUPS:
            _OF_GROUPS[pg.group_name] = MessageQueue(pg.size())
        return MessageQueue.create_from_handle(_OF_GROUPS[pg.group_name], pg.rank())

    def export_handle(self) -> "MessageQueue":
        return self

    def wait_until_ready(self) -> None:
        """Do nothing: the queue is ready as soon as it exists."""

    def shutdown(self) -> None:
        """Do nothing: no process polls the queue."""

    def enqueue(self, obj: Any, timeout: float | None = None) -> None:
        """Send an object to all readers."""
        message = hosts().step(), native().host_clock(), pickle.dumps(obj)
        for inbox in self._inboxes:
            inbox.append(message)
        hosts().offer()

    def dequeue(self, timeout: float | None = None, **options: Any) -> Any:
        """Wait for the next object; the calling thread then does the work of the step that sent it."""
        inbox = self._inboxes[self._reader]
        hosts().wait(lambda: bool(inbox), "a message")
        step, clock, message = inbox.popleft()
        hosts().here.step = step
        native().join_host_clock(clock)
        return pickle.loads(message)

    def broadcast_object(self, obj: Any = None) -> Any:
        """Send an object as the first rank of a group, or receive it as another one."""
        if self._reader == 0:
            self.enqueue(obj)
            self._inboxes[0].clear()
            return obj
        return self.dequeue()


class Inbox(queue.Queue[Any]):
    """Queue between two threads of one rank."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put((hosts().step(), native().host_clock(), item))
        hosts().offer()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block:
            hosts().wait(lambda: not self.empty(), "work of its rank")
        step, clock, item = super().get(block=False)
        hosts().here.step = step
        native().join_host_clock(clock)
        return item


class RequestQueue(Inbox):
    """Queue of requests and messages to a rank's engine, which calls `receive` when a message ends a wait.

    The engine's steps do not follow from those of the sender.
    """

    def __init__(self, receive: Callable[[], None]) -> None:
        super().__init__()
        self._receive, self._is_asked = receive, False

    @property
    def is_waiting(self) -> bool:
        """Whether the engine waits for a message and none has arrived."""
        return self._is_asked and self.empty()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._is_asked = block
        found = super().get(block)
        if block:
            self._is_asked = False
            self._receive()
        hosts().here.step = None
        return found


class RankThread:
    """Second thread of the calling rank, with the arguments of `threading.Thread`."""

    def __init__(self, target: Callable[[], None], name: str = "", daemon: bool = True) -> None:
        self._target, self._name = target, name

    def start(self) -> None:
        here = hosts().here
        assert here.rank is not None, "a thread of the engine is not one of a rank"
        rank = here.rank

        def run() -> None:
            native().enter_rank(1 + rank.number)
            self._target()

        hosts().start(f"{here.name} {self._name}", rank, run)
