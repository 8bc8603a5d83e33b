"""Outputs that may be others under another schedule of the same trace, though no judge minds.

How far a request is at some tick depends on how many drafts were accepted by then, where an engine proposes its own and
a race may change them, and on when loads end. What an event of that tick does to its output follows from it.
"""

from collections import Counter
from collections.abc import Set

from scenarios.events import Abort, Continuation, DisturbTransfer, LoadWeights, NanLogits, Pausing, SpoilLogit, Submit
from scenarios.trace import Trace
from workers.oracle.incremental_tape import depends_on_drafts


def varying(trace: Trace, scripts_drafts: bool) -> Set[str]:
    """Return the names of the requests of a trace whose outputs may vary; `scripts_drafts` if the trace says drafts."""
    spec, submits = trace.spec, trace.submits()
    names = {submit.request for submit in submits}
    by_drafts = set() if scripts_drafts else {each.request for each in submits if depends_on_drafts(each.params, spec)}
    proposes = spec.num_speculative_tokens > 0 and not scripts_drafts
    if not proposes and not spec.has_connector:
        return by_drafts
    if any(isinstance(event, LoadWeights) or _ends_all(event) for event in trace.events):
        return names
    # Which requests of a name are submitted depends on whether those before have ended.
    times = Counter(submit.request for submit in submits)
    changed = {name for name in names if times[name] > 1}
    changed |= {event.request for event in trace.events if isinstance(event, Abort | NanLogits | SpoilLogit)}
    if "fail" in (way.failures for way in (spec.transfer, spec.handoff) if way is not None):
        changed |= {event.request for event in trace.events if isinstance(event, DisturbTransfer)}
    # A part of a session goes on from the tokens of the part before.
    sessions = {submit.session for submit in submits if submit.request in changed}
    return by_drafts | changed | {each.request for each in submits if _goes_on(each, sessions)}


def _ends_all(event: object) -> bool:
    return isinstance(event, Pausing) and event.mode == "abort"


def _goes_on(submit: Submit, sessions: Set[str | None]) -> bool:
    """Tell whether a request's prompt may have tokens of another one whose output may vary."""
    return isinstance(submit.prompt, Continuation) or (submit.session is not None and submit.session in sessions)
