"""Reference runs of a trace, and where comparing outputs with theirs is fair.

Fair is a demand for equal tokens: of a greedy request always, of one whose tokens are drawn where they depend on its
position alone. Where two logits are closer than an engine's arithmetic may tell apart, either is right.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from scenarios.capabilities import Capabilities
from scenarios.draw import below
from scenarios.events import (
    CONTROL_EVENTS,
    PLACES,
    Abort,
    AnyEvent,
    DummyStep,
    LoadWeights,
    Preempt,
    Schedule,
    SetK,
    Stall,
    Submit,
)
from scenarios.trace import Trace
from workers.judge.drafter_identities import Proposals
from workers.judge.outputs import Outputs
from workers.record.evidence import Reference
from workers.run.agreed_run import AgreedRun

# Of a trace with many requests so many are run alone by an engine whose runs are costly.
ALONE_MAX = 2
# Logprobs of a token and of the three likeliest, in the run that is asked how near two of them were.
NUM_UNDECIDED = 4

# A kind of reference, and its trace.
ReferenceRun: TypeAlias = tuple[Reference, Trace]


@dataclass(slots=True)
class References:
    """The reference runs of one trace under several schedules: each runs once, and its outputs are kept.

    `until` is the last kind that matters. Of an engine that logs its decisions it is the run that was `agreed` last.
    """

    until: Reference | Literal["all", "none"] = "all"
    agreed: AgreedRun | None = None
    # By trace what was proposed in a run that shows it.
    proposed: dict[str, Proposals] = field(default_factory=dict)
    _outputs: dict[str, Outputs | str] = field(default_factory=dict)

    def that_matter(self, references: Iterable[ReferenceRun]) -> Iterator[ReferenceRun]:
        """Yield references up to the first of the last kind that matters."""
        for kind, trace in references if self.until != "none" else ():
            yield kind, trace
            if kind == self.until:
                return

    def outputs_of(self, trace: Trace, run: Callable[[Trace], Outputs | str]) -> Outputs | str:
        """Return the outputs of a trace, or how it broke off; it is run unless it was run before."""
        key = trace.model_dump_json()
        if key not in self._outputs:
            self._outputs[key] = run(trace)
        return self._outputs[key]


def synchronous(trace: Trace) -> Trace:
    """Return the same trace for an engine that processes each step before it schedules the next."""
    spec = trace.spec.model_copy(update={"depth": 1})
    return trace.model_copy(update={"spec": spec, "schedule": Schedule()})


def without_drafts(trace: Trace) -> Trace:
    """Return the same trace for a synchronous engine that does not speculate."""
    trace = synchronous(trace)
    return trace.model_copy(update={"spec": trace.spec.model_copy(update={"num_speculative_tokens": 0})})


def alone(trace: Trace, name: str) -> Trace:
    """Return a trace of one request, with the events that name it and none of others, but for those of weights."""
    own = tuple(event for event in trace.events if _is_of(event, name))
    return trace.model_copy(update={"events": own, "schedule": Schedule()})


def undisturbed(trace: Trace) -> Trace | None:
    """Return a trace without its control plane, of requests whose outputs that must not change; None if there are none.

    Of weights that are exchanged the last ones are there from the start, for the requests that are submitted behind
    them. Those may be asked of blocks computed by others if these were kept for them.
    """
    events = sorted(trace.events, key=lambda event: (event.tick, PLACES.index(event.at)))
    loads = [(index, event) for index, event in enumerate(events) if isinstance(event, LoadWeights)]
    kept: list[AnyEvent] = []
    if loads:
        index, last = loads[-1]
        if trace.spec.prefix_cache and not last.clear_cache:
            return None
        kept, events = [last.model_copy(update={"tick": 0})], events[index + 1 :]
    kept += [event for event in events if not isinstance(event, DummyStep | SetK) and event.do not in CONTROL_EVENTS]
    if len(kept) == len(trace.events):
        return trace
    found = trace.model_copy(update={"events": tuple(kept)})
    return found if found.submits() else None


def _is_of(event: AnyEvent, name: str) -> bool:
    """Tell whether an event names a request, or gives its model weights."""
    return isinstance(event, LoadWeights) or (isinstance(event, Submit | Abort | Stall) and event.request == name)


def references(trace: Trace, names: list[str], capabilities: Capabilities) -> Iterator[ReferenceRun]:
    """Yield the runs that the outputs of a trace are compared with, each with its kind."""
    calm = undisturbed(trace)
    if calm is None:
        return
    if calm is not trace:
        submitted = {event.request for event in calm.submits()}
        trace, names = calm, [name for name in names if name in submitted]
    if trace.spec.depth > 1 and capabilities.allows("depth", 1):
        yield Reference.SYNCHRONOUS, synchronous(trace)
    if trace.schedule.policy != "eager" and capabilities.is_costly:
        # Later references are compared under eager.
        return
    if trace.spec.num_speculative_tokens and capabilities.allows("num_speculative_tokens", 0):
        yield Reference.WITHOUT_SPECULATION, without_drafts(trace)
    for name in _chosen(trace, names) if capabilities.is_costly else names:
        yield Reference.ALONE, alone(trace, name)


def undecided_trace(trace: Trace, name: str) -> Trace:
    """Return a run of one request alone that shows the logprobs of the three likeliest tokens it chose among."""
    trace = without_drafts(alone(undisturbed(trace) or trace, name))
    spec = trace.spec.model_copy(update={"logprobs_mode": "processed"})
    events = [
        event.model_copy(update={"params": event.params.model_copy(update={"num_logprobs": NUM_UNDECIDED})})
        if isinstance(event, Submit)
        else event
        for event in trace.events
        if not isinstance(event, Preempt)
    ]
    return trace.model_copy(update={"spec": spec, "events": tuple(events)})


def _chosen(trace: Trace, names: list[str]) -> list[str]:
    """Return a few of the requests, others in other traces."""
    if len(names) <= ALONE_MAX:
        return names
    first = below(len(names), trace.seed, "alone", "", 0)
    return [names[(first + index) % len(names)] for index in range(ALONE_MAX)]
