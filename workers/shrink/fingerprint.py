"""Signature of a finding: equal for all findings of one bug, for deduplication.

It is made of evidence only, never of sentences about a finding.
"""

import re

from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.evidence import RACES, Difference, MissingOrder, Violation
from workers.record.rules import Reference
from workers.record.verdict import (
    Agreed,
    Crashed,
    Diverged,
    LanesWait,
    Lost,
    NotDrained,
    Stuck,
    Vacuous,
    Verdict,
)

# The parts of an exception's message that belong to one trace: numbers, and how many there are.
_NUMBER = re.compile(r"-?\d+")
_NUMBERS = re.compile(r"N(, N)*,?")
# The plane of the signature of any consequence of a race.
_HARM = "harm"


class Signature(Value):
    """What failed first in a run (state category, variable, rule), without trace details.

    - `variable`: the first wrong variable; `writer`: the lane and op that wrote it last, if recorded.
    - `lanes`: the actors of the first unordered pair of accesses.
    - `rule`: the broken rule of the log, an exception, or why a run is stuck, without numbers and request names.
    - `reference`: the run that a wrong output was compared with.
    """

    plane: str
    variable: str
    writer: str = ""
    lanes: tuple[str, ...] = ()
    rule: str = ""
    reference: Reference | None = None

    @property
    def bug(self) -> str:
        """Text that identifies the bug: the race if there is one, else what failed first."""
        if self.lanes:
            return f"lanes {' before '.join(self.lanes)}"
        unlike = f"unlike {self.reference}" if self.reference is not None else self.rule
        return f"{self.plane} {self.variable} {unlike}".rstrip()

    def matches(self, other: "Signature") -> bool:
        """Return whether another trace fails in the same way: category of state, variable, rule.

        A race is the same between the same lanes, for any memory, and also if it makes a value wrong. A failure after a
        race matches only a failure after the same race.
        """
        if self.lanes and self.lanes != other.lanes:
            return False
        if self.plane == _HARM:
            return not other.is_bare_race
        return self.is_bare_race or self._cause == other._cause

    def is_still(self, other: "Signature") -> bool:
        """Return whether `other`, seen with fixes applied, is the same failure of this trace.

        A failure still is the same after another race, or without one; a race is the same between the same lanes.
        """
        return self.lanes == other.lanes if self.is_bare_race else self._cause == other._cause

    @property
    def is_bare_race(self) -> bool:
        """Whether the finding is a race that has produced no wrong value."""
        return self.plane == RACES

    @property
    def harm(self) -> "Signature":
        """Return a signature that matches each failure that the race may cause, but not the race."""
        return Signature(plane=_HARM, variable="", lanes=self.lanes)

    @property
    def _cause(self) -> tuple[object, ...]:
        return self.plane, self.variable, self.rule, self.reference


def signature_of(verdict: Verdict, trace: Trace) -> Signature | None:
    """Return the signature of a finding; None for a verdict that is no finding."""
    match verdict:
        case Diverged(difference=difference):
            return _of_difference(difference)
        case Crashed(error=error, where=where, missing_order=order):
            rule = _general(error, trace)
            return Signature(plane="crash", variable=where.function, lanes=_lanes(order), rule=rule)
        case Stuck(waits=waits, missing_order=order):
            rule = _wait(waits)
            return Signature(plane="liveness", variable="progress", lanes=_lanes(order), rule=rule)
        case Agreed() | Vacuous() | Lost():
            return None


def _of_difference(difference: Difference) -> Signature:
    writer = difference.writers[0] if difference.writers else None
    return Signature(
        plane=difference.plane,
        variable=difference.variable,
        writer=f"{writer.actor}:{writer.op}" if writer is not None else "",
        lanes=_lanes(difference.missing_order),
        rule=_rule(difference.actual) if isinstance(difference.actual, Violation) else "",
        reference=difference.reference,
    )


def _rule(broken: Violation) -> str:
    """Return the text of a broken scheduling rule and the kind of log entry, without request names."""
    rule = broken.rule.format(**broken.values)
    about = f"request R: {rule}" if broken.request else rule
    return f"{broken.entry}: {about}" if broken.entry else about


def _wait(waits: NotDrained | LanesWait) -> str:
    """Return what a hanging run waits for: the host's wait or, without one, the first stream's."""
    match waits:
        case NotDrained():
            return "not drained after N steps"
        case LanesWait(host=str(host)):
            return f"the host waits for {host}"
        case LanesWait(lanes=(first, *_)):
            return f"{first.lane} waits for {first.on} of step N"
        case LanesWait():
            return "no lane has anything to do"


def _lanes(order: MissingOrder | None) -> tuple[str, ...]:
    return (order.first.actor, order.second.actor) if order is not None else ()


def _general(text: str, trace: Trace) -> str:
    """Return an exception's message with placeholders for request names and numbers."""
    for event in trace.events:
        name = getattr(event, "request", None)
        if name:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "R", text)
    return _NUMBERS.sub("N", _NUMBER.sub("N", text))
