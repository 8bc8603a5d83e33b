"""What the events of a trace demand of an engine, and what they allow: each is heard at its place, once.

Verifies: that a submit, an abort or a preemption happened by the time its event is due, and at no other time.
Does not verify: stalls, samples taken away, K and permutations; it says what is due, `referee` compares.
"""

from scenarios.events import PLACES, Abort, AnyEvent, NoValidToken, Place, Preempt, Reorder, SetK, Stall, Submit
from scenarios.trace import Trace
from workers.log import Submitted
from workers.oracle import Oracle
from workers.truth import Truth

Moment = tuple[int, int]


class Duties:
    """The events in the order in which an engine hears them, and what they ask for now.

    An event about a request that was not submitted before it asks for nothing. `k_step` drafts are due, the samples
    of `samples_taken` are to be taken away, `reorder` waits for a batch.
    """

    def __init__(self, trace: Trace, oracle: Oracle) -> None:
        self.k_step = trace.spec.num_speculative_tokens
        self.reorder: Reorder | None = None
        self.samples_taken: set[int] = set()
        self._k_max = self.k_step
        self._oracle = oracle
        self._submits: list[Submit] = []
        self._num_submitted = 0
        self._stalled_until: dict[int, int] = {}
        self._events: list[tuple[Moment, AnyEvent, int]] = []
        self._asked: dict[tuple[type[AnyEvent], int], list[Moment]] = {}
        self._next = 0
        self._now: Moment = (-1, len(PLACES) - 1)
        indexes: dict[str, int] = {}
        for event in sorted(trace.events, key=_moment):
            name = "" if isinstance(event, Reorder | SetK) else event.request
            if isinstance(event, Submit):
                indexes[name] = len(indexes)
                self._submits.append(event)
            if not name or name in indexes:
                index = indexes.get(name, -1)
                self._events.append((_moment(event), event, index))
                self._asked.setdefault((type(event), index), []).append(_moment(event))

    def come_due(self, tick: int, place: Place) -> str | None:
        """Hear every event up to a place of a tick; return which of them was not obeyed, or None."""
        self._now = (tick, PLACES.index(place))
        while self._next < len(self._events) and self._events[self._next][0] <= self._now:
            _, event, index = self._events[self._next]
            self._next += 1
            wrong = self._hear(event, index)
            if wrong is not None:
                return wrong
        early = len(self._oracle.requests) - self._num_submitted
        return f"request {self._oracle.requests[-1].name} was submitted before its event" if early else None

    def submitted(self, entry: Submitted) -> str | None:
        """Return what is wrong with a submission, or None."""
        if entry.request != len(self._oracle.requests) or entry.request >= len(self._submits):
            return f"request {entry.request} was submitted out of order"
        due = self._submits[entry.request].tick
        return None if entry.tick == due else f"submitted at tick {entry.tick}, its event is due at tick {due}"

    def asked_for(self, kind: type[Abort | Preempt], truth: Truth, tick: int) -> str | None:
        """Return what is wrong with something that happens to a request between two places, or None."""
        until = (self._now[0] + 1, 0)
        if any(self._now < at <= until and at[0] == tick for at in self._asked.get((kind, truth.index), ())):
            return None
        return f"{kind.__name__.lower()} of request {truth.name} at tick {tick}, but no event asks for it"

    def stalled(self, tick: int) -> set[int]:
        """Return the requests that are held back in a tick."""
        return {request for request, until in self._stalled_until.items() if until > tick}

    def _hear(self, event: AnyEvent, index: int) -> str | None:
        match event:
            case SetK(k=k):
                self.k_step = min(k, self._k_max)
            case Reorder():
                self.reorder = event
            case Submit(request=name, tick=tick):
                if self._num_submitted >= len(self._oracle.requests):
                    return f"request {name} was not submitted, its event was due at tick {tick}"
                self._num_submitted += 1
            case Abort() | Preempt() | Stall() | NoValidToken():
                truth = self._oracle.requests[index]
                if truth.finish_reason is None:
                    return self._hear_of(event, truth)
        return None

    def _hear_of(self, event: Abort | Preempt | Stall | NoValidToken, truth: Truth) -> str | None:
        match event:
            case Abort(tick=tick):
                return f"request {truth.name} goes on, its abort was due at tick {tick}"
            case Preempt(tick=tick):
                return f"request {truth.name} runs on, its preemption was due at tick {tick}" if truth.running else None
            case Stall(tick=tick, at=at, ticks=ticks):
                until = tick + (at != "before_schedule") + ticks
                self._stalled_until[truth.index] = max(until, self._stalled_until.get(truth.index, 0))
            case NoValidToken():
                self.samples_taken.add(truth.index)
        return None


def _moment(event: AnyEvent) -> Moment:
    return event.tick, PLACES.index(event.at)
