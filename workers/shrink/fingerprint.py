"""Fingerprint of a finding, used to deduplicate: one bug has one signature, whichever trace it was found on."""

import re

from scenarios.events import ResetPrefixCache
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.verdict import Agreed, Crashed, Difference, Diverged, Lost, Stuck, Vacuous, Verdict

_ACCESS = re.compile(r"by (\w+):[\w ]+@-?\d+")
_NUMBER = re.compile(r"-?\d+")
_NUMBERS = re.compile(r"N(, N)*,?")
# How the rule of a wrong output begins; the run that it was compared with follows.
UNLIKE = "unlike "
# Where the masks of a step are made for more drafts than it verifies: the device has cut some since.
_CUT = "where grammars meet drafts that the device cuts"
# A result is thrown away, and what came with it is not computed again.
_DROPPED = "where all who run are preempted"


class Signature(Value):
    """The first thing that is wrong, without the coordinates of one trace.

    `variable` is the first bad variable, `writer` the lane and op that wrote it last (where a run was watched for it),
    `lanes` the two lanes of the first unordered pair of accesses, `rule` what a referee, an exception or a stuck engine
    says, with numbers and request names left out.
    """

    plane: str
    variable: str
    writer: str = ""
    lanes: str = ""
    rule: str = ""

    @property
    def bug(self) -> str:
        """Return what makes this one bug among others: a missing order counts before what comes of it."""
        return f"lanes {self.lanes}" if self.lanes else f"{self.plane} {self.variable} {self.rule}".rstrip()

    def matches(self, other: "Signature") -> bool:
        """Tell whether a smaller trace fails as this one does: in the same plane, variable and rule.

        A race is the same between the same lanes, whatever memory it is about.
        """
        if self.plane == other.plane == "races":
            return self.lanes == other.lanes
        return (self.plane, self.variable, self.rule) == (other.plane, other.variable, other.rule)


def signature_of(verdict: Verdict, trace: Trace) -> Signature | None:
    """Return the signature of a finding on a trace, None for any other verdict."""
    match verdict:
        case Diverged(difference=difference):
            return _of_difference(difference, trace)
        case Crashed(error=error, where=where):
            function = where.partition(" in ")[0]
            lanes = _lanes(verdict.missing_order)
            return Signature(plane="crash", variable=function, lanes=lanes, rule=_general(error, trace))
        case Stuck(reason=reason):
            return Signature(plane="liveness", variable="progress", rule=_general(reason.partition(";")[0], trace))
        case Agreed() | Vacuous() | Lost():
            return None


def _of_difference(difference: Difference, trace: Trace) -> Signature:
    return Signature(
        plane=difference.plane,
        variable=difference.variable,
        writer=difference.writers[0].partition("@")[0] if difference.writers else "",
        lanes=_lanes(difference.missing_order),
        rule=_rule(difference, trace),
    )


def _rule(difference: Difference, trace: Trace) -> str:
    """Return what tells one wrong decision from another, or what a wrong output was compared with."""
    if difference.variable == "log":
        # A referee says what was seen, a comma, and what is due.
        return _general(difference.actual, trace).partition(", ")[0]
    expected, is_compared, reference = difference.expected.rpartition(", as in ")
    if not is_compared:
        if difference.variable == "grammar" and _is_cut(trace):
            return _CUT
        return _DROPPED if _is_dropped(difference, trace) else ""
    if _lets_stop(difference, expected, trace):
        return f"{UNLIKE}{reference}, where min_tokens let it stop"
    return f"{UNLIKE}{reference}, {_CUT}" if _is_cut(trace) else f"{UNLIKE}{reference}"


def _is_dropped(difference: Difference, trace: Trace) -> bool:
    """Tell whether the logprobs of a prompt are missing altogether, in a trace that throws results away."""
    drops = any(isinstance(event, ResetPrefixCache) and event.running for event in trace.events)
    return drops and difference.variable == "prompt_logprobs" and difference.actual.startswith("0 logprobs")


def _is_cut(trace: Trace) -> bool:
    """Tell whether requests follow grammars while their drafts are looked up on the device, with a step in flight."""
    has_grammars = any(event.params.grammar for event in trace.submits())
    return has_grammars and trace.spec.drafter == "ngram_gpu" and trace.spec.depth > 1


def _lets_stop(difference: Difference, expected: str, trace: Trace) -> bool:
    """Tell whether the other run's token is a stop of a request that has a minimum, and so ends it there."""
    submits = [event for event in trace.submits() if event.request == difference.request and event.params.min_tokens]
    return difference.variable == "tokens" and any(expected in map(str, event.stop) for event in submits)


def _lanes(missing_order: str | None) -> str:
    return " before ".join(_ACCESS.findall(missing_order or ""))


def _general(text: str, trace: Trace) -> str:
    """Return a message without what belongs to one trace: names of requests, numbers, and how many there are."""
    for event in trace.events:
        name = getattr(event, "request", None)
        if name:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "R", text)
    return _NUMBERS.sub("N", _NUMBER.sub("N", text))
