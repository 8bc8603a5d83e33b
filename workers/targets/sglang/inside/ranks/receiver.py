"""SGLang's receiver of requests for one of several ranks: rank 0 takes them from the driver, not from a socket.

SGLang's own code then broadcasts them to the other ranks.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sglang.srt.managers.scheduler_components.request_receiver import SchedulerRequestReceiver

from workers.targets.child.inside.ranks import Hosts


@dataclass(frozen=True, slots=True)
class EndOfTrace:
    """Last message of a trace: each rank ends its event loop after the iteration that receives it."""


@dataclass(slots=True, eq=False)
class Mailbox:
    """One trace: requests for the next iterations of rank 0, and the state of each rank's event loop.

    `num_begun` counts the iterations of each rank, `has_ended` says which event loops have ended.
    """

    hosts: Hosts
    num_begun: list[int]
    has_ended: list[bool]
    coming: deque[Sequence[Any]] = field(default_factory=deque)


class RankReceiver(SchedulerRequestReceiver):  # type: ignore[misc]
    """SGLang's receiver of one rank, with the socket replaced."""

    __slots__ = ("mailbox", "rank", "scheduler")

    @classmethod
    def of(cls, own: Any, scheduler: Any, rank: int, mailbox: Mailbox) -> "RankReceiver":
        """Return the receiver of a rank's scheduler, with the fields of its `own` one."""
        made = cls(**{each.name: getattr(own, each.name) for each in fields(SchedulerRequestReceiver)})
        for name, value in (("scheduler", scheduler), ("rank", rank), ("mailbox", mailbox)):
            object.__setattr__(made, name, value)
        return made

    def recv_requests(self, local_reqs: Any = None) -> list[Any]:
        """Return the requests of this iteration, as SGLang does; end the event loop after the last one."""
        self.mailbox.num_begun[self.rank] += 1
        received = SchedulerRequestReceiver.recv_requests(self, local_reqs)
        if any(isinstance(each, EndOfTrace) for each in received):
            self.scheduler.gracefully_exit = True
        return [each for each in received if not isinstance(each, EndOfTrace)]

    def _pull_raw_reqs(self) -> list[Any] | None:
        """Wait for the driver's next step as rank 0; another rank pulls nothing."""
        if self.rank:
            return None
        self.mailbox.hosts.wait(lambda: bool(self.mailbox.coming), "the next step of the trace")
        return list(self.mailbox.coming.popleft())
