"""Session (one trace) on data-parallel ranks: each request is sent to one of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any

from vllm.v1.engine import EngineCoreRequestType

from scenarios.events import Abort, AnyEvent, Pause, Preempt, Stall, Submit
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.control import SessionServices
from workers.targets.vllm.inside.plans import PlanRecorder
from workers.targets.vllm.inside.ranks.data_ranks import DataRankCore, DataRanks
from workers.targets.vllm.inside.requests import taken_request
from workers.targets.vllm.inside.session import RequestCount, Session, memory_of


class RankControl:
    """Control calls to one rank, as messages in its queue; `resume` is called when the rank may resume."""

    def __init__(self, core: DataRankCore, resume: Callable[[DataRankCore], None]) -> None:
        self._core, self._resume = core, resume

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def has_work(self) -> bool:
        """Return true: only the rank's own loop finds out that it is idle."""
        return True

    def pause_scheduler(self, mode: str, clear_cache: bool) -> Future[None]:
        return self._core.call("pause_scheduler", mode, clear_cache)

    def resume_scheduler(self) -> None:
        self._resume(self._core)


class RankSession(Session):
    """The part of a trace that one data-parallel rank runs; requests and aborts reach the rank by its queue."""

    engine: DataRankCore

    def __init__(self, ranks: DataRanks, resume: Callable[[DataRankCore], None], *given: Any, **named: Any) -> None:
        self._ranks, self._resume = ranks, resume
        super().__init__(*given, **named)

    @property
    def is_paused(self) -> bool:
        """Whether the rank is paused, or will be resumed."""
        return self._control.is_busy

    def drained(self) -> bool:
        return super().drained() and self._ranks.is_idle

    def _controlled(self) -> RankControl:
        return RankControl(self.engine, self._resume)

    def _add(self, request_id: str, event: Submit, *, resumable: bool) -> None:
        taken, _ = taken_request(self.engine, request_id, event, self._submits.taken, resumable=resumable)
        coordinator = self._ranks.coordinator
        self.engine.input_queue.put_nowait((EngineCoreRequestType.ADD, (taken, coordinator.wave)))
        coordinator.announce(self.engine.engine_index)

    def _abort_requests(self, request_ids: list[str]) -> None:
        if request_ids:
            self.engine.input_queue.put_nowait((EngineCoreRequestType.ABORT, list(request_ids)))


class DataRanksSession:
    """One trace on the data-parallel ranks of an engine.

    A request goes to the rank that its submit names; other events on it go to the same rank. Events without a request
    go to all ranks. A pause reaches each rank one tick after the rank before it, and all ranks resume together, because
    each waits for the others in the call that resumes it. Until then further pauses are ignored.
    """

    def __init__(
        self,
        ranks: DataRanks,
        number: int,
        observe: Callable[[int, Any], PlanRecorder] | None,
        give_back: Callable[[Any], None],
        services: SessionServices,
    ) -> None:
        self._ranks, self._give_back, count = ranks, give_back, RequestCount()
        self._sessions = [
            RankSession(
                ranks,
                self._resume,
                core,
                number,
                None if observe is None else lambda core, rank=rank: observe(rank, core),
                lambda core: None,
                services=services,
                count=count,
            )
            for rank, core in enumerate(ranks.cores)
        ]
        self._of_request: dict[str, RankSession] = {}
        # Events by the tick in which a rank receives them, and the ranks that may resume.
        self._tick, self._later = 0, dict[int, list[tuple[RankSession, AnyEvent]]]()
        self._resuming: list[DataRankCore] = []

    @property
    def probes(self) -> Mapping[str, int]:
        return sum((each.probes for each in self._sessions), Counter())

    @property
    def memory(self) -> Mapping[str, object]:
        return {
            f"rank {rank}: {name}": holder
            for rank, core in enumerate(self._ranks.cores)
            for name, holder in memory_of(core).items()
        }

    def happen(self, event: AnyEvent) -> None:
        if isinstance(event, Pause):
            # A client that pauses again before all ranks have resumed would send the calls in another order to each.
            if not (self._later or self._resuming or any(session.is_paused for session in self._sessions)):
                self._pause(event)
            return
        for session in self._receivers(event):
            session.happen(event)

    def _pause(self, event: Pause) -> None:
        """Pause the first rank now, and each other rank one tick after the rank before it.

        A pause that aborts requests reaches all ranks now: it ends the requests of this tick.
        """
        lag = 0 if event.mode == "abort" else 1
        for number, session in enumerate(self._sessions):
            self._later.setdefault(self._tick + number * lag, []).append((session, event))
        for session, pause in self._later.pop(self._tick):
            session.happen(pause)

    def _resume(self, core: DataRankCore) -> None:
        self._resuming.append(core)
        if len(self._resuming) == len(self._sessions):
            for each in self._resuming:
                each.call("resume_scheduler")
            self._resuming.clear()

    def _receivers(self, event: AnyEvent) -> Sequence[RankSession]:
        """Return the ranks that an event concerns."""
        match event:
            case Submit(request=name, data_rank=number):
                self._of_request[name] = self._sessions[number % len(self._sessions)]
                return [self._of_request[name]]
            case Abort(request=name) | Preempt(request=name) | Stall(request=name):
                return [self._of_request[name]] if name in self._of_request else []
            case _:
                return self._sessions

    def step(self) -> list[Delivery]:
        self._ranks.coordinator.receive()
        for session, event in self._later.pop(self._tick, ()):
            session.happen(event)
        for session in self._sessions:
            session.begin_step()
        self._ranks.step(is_message_due=bool(self._later))
        self._tick += 1
        return list(chain.from_iterable(each.end_step({}, each.engine.has_executed) for each in self._sessions))

    def seen(self) -> list[Message]:
        # The recorders of all ranks share one list.
        return self._sessions[0].seen()

    def ended(self) -> None:
        for session in self._sessions:
            session.ended()

    def drained(self) -> bool:
        return not self._later and all(session.drained() for session in self._sessions)

    def close(self) -> None:
        is_idle = self.drained()
        for session in self._sessions:
            session.close()
        if is_idle:
            self._give_back(self._ranks)
