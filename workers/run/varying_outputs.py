"""Find requests whose outputs may correctly differ between schedules of one trace.

The progress of a request at a tick depends on its accepted draft tokens, which a race may change if the engine proposes
its own, and on the ends of KV loads. So the effect of an event at that tick on the output may differ, too.
"""

from collections import Counter
from collections.abc import Set

from scenarios.events import Abort, Continuation, DisturbTransfer, LoadWeights, NanLogits, Pausing, SpoilLogit, Submit
from scenarios.trace import Trace
from workers.oracle.incremental_values import depends_on_drafts


def varying(trace: Trace, scripts_drafts: bool) -> Set[str]:
    """Return the requests whose outputs may differ between schedules without a bug.

    `scripts_drafts`: the trace scripts the draft tokens, so they do not vary.
    """
    spec, submits = trace.spec, trace.submits()
    names = {submit.request for submit in submits}
    by_drafts = set() if scripts_drafts else {each.request for each in submits if depends_on_drafts(each.params, spec)}
    proposes = spec.num_speculative_tokens > 0 and not scripts_drafts
    if not proposes and not spec.has_connector:
        return by_drafts
    if any(isinstance(event, LoadWeights) or _aborts_all(event) for event in trace.events):
        return names
    # A submit is only accepted if the earlier request of its name has ended.
    times = Counter(submit.request for submit in submits)
    changed = {name for name in names if times[name] > 1}
    changed |= {event.request for event in trace.events if isinstance(event, Abort | NanLogits | SpoilLogit)}
    if "fail" in (way.failures for way in (spec.transfer, spec.handoff) if way is not None):
        changed |= {event.request for event in trace.events if isinstance(event, DisturbTransfer)}
    # A session part continues the tokens of the part before.
    sessions = {submit.session for submit in submits if submit.request in changed}
    return by_drafts | changed | {each.request for each in submits if _may_continue_varying_output(each, sessions)}


def _aborts_all(event: object) -> bool:
    return isinstance(event, Pausing) and event.mode == "abort"


def _may_continue_varying_output(submit: Submit, sessions: Set[str | None]) -> bool:
    """Return whether a prompt may contain output that varies between schedules."""
    return isinstance(submit.prompt, Continuation) or (submit.session is not None and submit.session in sessions)
