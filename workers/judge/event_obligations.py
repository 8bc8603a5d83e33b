"""Check that an engine applies a trace's events in order, each at its hook of a step.

Verifies:
- a submit, an abort, a preemption or a cache reset is in the log at the time of its event, in the order of the events;
- none of these is in the log without an event;
- an event applies to the last request submitted under its name.

Does not verify: stalls, removed samples, the number of draft tokens (K), and row permutations. It provides their
expected values, which `referee` compares.
"""

from typing import TypeAlias

from scenarios.events import (
    HOOKS,
    Abort,
    AnyEvent,
    DummyStep,
    Hook,
    NanLogits,
    NoValidToken,
    Preempt,
    Reorder,
    ResetPrefixCache,
    SetK,
    SpoilDraft,
    SpoilLogit,
    Stall,
    Submit,
)
from scenarios.trace import Trace
from workers.oracle.state_oracle import Oracle
from workers.oracle.truth import Truth
from workers.record.evidence import Violation, violation
from workers.record.log import UNSPOILED, Aborted, CacheReset, Preempted, Spoils, Submitted
from workers.record.rules import Rule

Moment: TypeAlias = tuple[int, int]
_RequestEvent: TypeAlias = Abort | Preempt | Stall | NoValidToken | NanLogits | SpoilLogit | SpoilDraft
RequiredEntry: TypeAlias = Submitted | Aborted | Preempted | CacheReset


class EventObligations:
    """The events of a trace in the order in which an engine must apply them.

    An event for a request that is not alive requires nothing, nor does a submit whose name is in use.
    - `k_step`: the number of draft tokens that a step must propose.
    - `spoils`: by request, changes of logits, samples or drafts that wait for a batch row of the request.
    - `reorder`: a permutation that waits for a step with a batch.
    - `is_dummy_due`: a dummy step waits for a step without a batch.
    """

    def __init__(self, trace: Trace, oracle: Oracle) -> None:
        self.k_step = trace.spec.num_speculative_tokens
        self.reorder: Reorder | None = None
        self.is_dummy_due = False
        self.spoils: dict[int, Spoils] = {}
        self._k_max = self.k_step
        self._oracle = oracle
        self._submits = trace.submits()
        self._stalled_until: dict[int, int] = {}
        self._events: list[tuple[Moment, int, AnyEvent]] = []
        num_submits = 0
        for event in trace.events:
            self._events.append(((event.tick, HOOKS.index(event.at)), num_submits, event))
            num_submits += isinstance(event, Submit)
        self._events.sort(key=lambda each: each[0])
        self._next = 0
        self._now: Moment = (-1, len(HOOKS) - 1)

    def advance_to(self, tick: int, hook: Hook) -> Violation | None:
        """Apply all events that are due by a hook of a tick; return a violation if the engine skipped one."""
        self._now = (tick, HOOKS.index(hook))
        if not self._apply_until(self._now):
            return None
        event = self._events[self._next][2]
        match event:
            case Submit(request=name, tick=due):
                return violation(Rule.SUBMIT_MISSING, name=name, tick=due)
            case Abort(request=name, tick=due):
                return violation(Rule.ABORT_MISSING, name=name, tick=due)
            case Preempt(request=name, tick=due):
                return violation(Rule.PREEMPT_MISSING, name=name, tick=due)
            case ResetPrefixCache(tick=due):
                return violation(Rule.RESET_MISSING, tick=due)
        raise AssertionError(f"event {event.do} requires no log entry")

    def check_entry(self, entry: RequiredEntry) -> Violation | None:
        """Return a violation if no event causes this log entry now, or None."""
        if isinstance(entry, Submitted):
            wrong = self._misdated(entry)
            if wrong is not None:
                return wrong
        if self._apply_until((self._now[0] + 1, 0)) and self._is_required(entry):
            # Running requests are preempted before the cache is reset.
            if not (isinstance(entry, Preempted) and entry.cause == "reset"):
                self._next += 1
            return None
        match entry:
            case Submitted(submit=submit):
                return violation(Rule.SUBMITTED_EARLY, name=self._submits[submit].request)
            case CacheReset(tick=tick):
                return violation(Rule.RESET_UNASKED, tick=tick)
            case Aborted(request=request, tick=tick):
                return violation(Rule.ABORT_UNASKED, name=self._oracle.requests[request].name, tick=tick)
            case Preempted(request=request, tick=tick):
                return violation(Rule.PREEMPT_UNASKED, name=self._oracle.requests[request].name, tick=tick)

    def stalled(self, tick: int) -> set[int]:
        """Return the requests that a stall event holds back in a tick."""
        return {request for request, until in self._stalled_until.items() if until > tick}

    def _misdated(self, entry: Submitted) -> Violation | None:
        if entry.request != len(self._oracle.requests) or not 0 <= entry.submit < len(self._submits):
            return violation(Rule.SUBMITTED_OUT_OF_ORDER, request=entry.request)
        due = self._submits[entry.submit].tick
        return None if entry.tick == due else violation(Rule.SUBMITTED_AT, tick=entry.tick, due=due)

    def _apply_until(self, moment: Moment) -> bool:
        """Apply events up to a moment; return True at the first one that must be in the log."""
        while self._next < len(self._events) and self._events[self._next][0] <= moment:
            if self._apply(self._events[self._next][2]):
                return True
            self._next += 1
        return False

    def _is_required(self, entry: RequiredEntry) -> bool:
        _, submit, event = self._events[self._next]
        match event, entry:
            case Submit(), Submitted():
                return entry.submit == submit
            case Abort(), Aborted():
                return self._oracle.requests[entry.request] is self._live_request(event) and entry.tick == event.tick
            case Preempt(), Preempted():
                is_due = entry.tick == event.tick and entry.mode == event.mode and entry.cause == "event"
                return is_due and self._oracle.requests[entry.request] is self._live_request(event)
            case ResetPrefixCache(running=True), Preempted() if self._oracle.running:
                is_due = entry.tick == event.tick and entry.mode == "drop" and entry.cause == "reset"
                return is_due and self._oracle.requests[entry.request] is self._oracle.running[-1]
            case ResetPrefixCache(running=running), CacheReset():
                return entry.tick == event.tick and not (running and self._oracle.running)
            case _:
                return False

    def _live_request(self, event: Submit | _RequestEvent) -> Truth | None:
        truth = self._oracle.newest.get(event.request)
        return truth if truth is not None and truth.finish_reason is None else None

    def _apply(self, event: AnyEvent) -> bool:
        """Apply an event; return whether the engine must log it now."""
        match event:
            case SetK(k=k):
                self.k_step = min(k, self._k_max)
            case Reorder():
                self.reorder = event
            case DummyStep():
                self.is_dummy_due = True
            case ResetPrefixCache():
                return True
            case Submit():
                return self._live_request(event) is None
            case Abort() | Preempt() | Stall() | NoValidToken() | NanLogits() | SpoilLogit() | SpoilDraft():
                truth = self._live_request(event)
                return truth is not None and self._apply_to(event, truth)
        return False

    def _apply_to(self, event: _RequestEvent, truth: Truth) -> bool:
        match event:
            case Abort():
                return True
            case Preempt():
                return truth.running
            case Stall(tick=tick, at=at, ticks=ticks):
                until = tick + (at != "before_schedule") + ticks
                self._stalled_until[truth.index] = max(until, self._stalled_until.get(truth.index, 0))
            case _:
                self.spoils[truth.index] = _with(self.spoils.get(truth.index, UNSPOILED), event)
        return False


def _with(spoils: Spoils, event: NoValidToken | NanLogits | SpoilLogit | SpoilDraft) -> Spoils:
    """Return a request's pending corruptions (NaN logits, invalid drafts) plus this event's."""
    match event:
        case NoValidToken():
            return spoils._replace(no_valid_token=True)
        case NanLogits():
            return spoils._replace(nan_logits=True)
        case SpoilLogit():
            return spoils._replace(logit=event)
        case SpoilDraft():
            return spoils._replace(draft=event)
