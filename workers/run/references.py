"""Reference runs of a trace, and where comparing outputs with theirs is fair.

Fair is a demand for equal tokens: of a greedy request always, of one whose tokens are drawn where they depend on its
position alone. Where two logits are closer than an engine's arithmetic may tell apart, either is right.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from scenarios.capabilities import Capabilities, with_params
from scenarios.events import (
    CONTROL_EVENTS,
    PLACES,
    Abort,
    AnyEvent,
    DummyStep,
    LoadWeights,
    NanLogits,
    Schedule,
    SetK,
    Spoil,
    SpoilLogit,
    Submit,
)
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.contracts.delivery import Delivery
from workers.judge.drafter_inputs import Proposals
from workers.judge.outputs import BrokenOff, Outputs
from workers.record.rules import Reference
from workers.run.agreed_run import AgreedRun

# What is done beside others, or with them, though it need not be.
_SWITCHES = ("plan_stream", "relay_lengths", "mixed_chunks")
# Keys of a specification at whose defaults nothing comes between a request and its tokens.
_UNDISTURBED = (
    "policy",
    "transfer",
    "offloading",
    "handoff",
    "prefix_cache",
    "match_tokens",
    "cascade",
    "long_prefill_token_threshold",
    "decodes_first",
    "drafter_max_len",
    *_SWITCHES,
)
# The reason of a request that somebody aborted.
ABORTED = "abort"
# As much of a name as another one can begin with.
NAME_MAX = 48
# Logprobs of a token and of the three likeliest, in the run that is asked how near two of them were.
NUM_UNDECIDED = 4

# A kind of reference, and its trace.
ReferenceRun: TypeAlias = tuple[Reference, Trace]


@dataclass(slots=True)
class References:
    """The reference runs of one trace under several schedules: each runs once, and its outputs are kept.

    `until` is the last kind that matters, `only` the one that a run is compared with where the trace has it, the first
    one where not. Of an engine that logs its decisions it is the run that was `agreed` last.
    """

    until: Reference | Literal["all", "none"] = "all"
    only: Reference | None = None
    agreed: AgreedRun | None = None
    # By trace what was proposed in a run that shows it.
    proposed: dict[str, Proposals] = field(default_factory=dict)
    _outputs: dict[str, Outputs | BrokenOff] = field(default_factory=dict)

    def that_matter(self, references: Iterable[ReferenceRun]) -> Iterator[ReferenceRun]:
        """Yield references up to the first of the last kind that matters."""
        if self.only is not None:
            every = list(references)
            yield from [each for each in every if each[0] is self.only][:1] or every[:1]
            return
        for kind, trace in references if self.until != "none" else ():
            yield kind, trace
            if kind == self.until:
                return

    def outputs_of(self, trace: Trace, run: Callable[[Trace], Outputs | BrokenOff]) -> Outputs | BrokenOff:
        """Return the outputs of a trace, or how it broke off; it is run unless it was run before."""
        key = trace.model_dump_json()
        if key not in self._outputs:
            self._outputs[key] = run(trace)
        return self._outputs[key]


def synchronous(trace: Trace) -> Trace:
    """Return the same trace for an engine that processes each step before it schedules the next.

    It loads nothing, and launches what it computes one by one, on one stream.
    """
    besides = {"transfer": None, "offloading": None, "handoff": None, "graphs": "none"}
    spec = trace.spec.model_copy(update={"depth": 1, **besides, **dict.fromkeys(_SWITCHES, False)})
    return trace.model_copy(update={"spec": spec, "schedule": Schedule()})


def without_drafts(trace: Trace) -> Trace:
    """Return the same trace for a synchronous engine that does not speculate."""
    trace = synchronous(trace)
    nothing = {"num_speculative_tokens": 0, "tree_width": 1}
    return trace.model_copy(update={"spec": trace.spec.model_copy(update=nothing)})


def undisturbed(trace: Trace, has_sessions: bool = False) -> Trace | None:
    """Return a trace without its control plane, of requests whose outputs that must not change; None if there are none.

    Of weights that are exchanged the last ones are there from the start, for the requests that are submitted behind
    them. Those may be asked of blocks computed by others if these were kept for them, by a prefix cache or by sessions.
    """
    events = sorted(trace.events, key=lambda event: (event.tick, PLACES.index(event.at)))
    loads = [(index, event) for index, event in enumerate(events) if isinstance(event, LoadWeights)]
    kept: list[AnyEvent] = []
    if loads:
        index, last = loads[-1]
        if (trace.spec.prefix_cache or has_sessions) and not last.clear_cache:
            return None
        kept, events = [last.model_copy(update={"tick": 0})], events[index + 1 :]
    kept += [event for event in events if not isinstance(event, DummyStep | SetK) and event.do not in CONTROL_EVENTS]
    if len(kept) == len(trace.events):
        return trace
    found = trace.model_copy(update={"events": tuple(kept)})
    return found if found.submits() else None


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests that a run took in, each under a name of its own, and what each got.

    `names` has the name that a request bore; the last request that bore a name keeps it. `cut_short` are those of which
    an event took a part.
    """

    submits: Mapping[str, Submit]
    outputs: Outputs
    names: Mapping[str, str]
    cut_short: frozenset[str]

    def among(self, submits: Sequence[Submit]) -> "Requests":
        """Return those of the requests that some submits are of."""
        kept = {
            own: submit
            for own, submit in self.submits.items()
            if submit.model_copy(update={"request": self.names[own]}) in submits
        }
        return replace(self, submits=kept)

    def judged(self, trace: Trace) -> Trace:
        """Return what their outputs are compared by: these requests, and the trace's events that are about none."""
        others = [event for event in trace.events if not isinstance(event, Submit | Abort | Spoil | NanLogits)]
        aborts = [Abort(tick=0, request=name) for name in sorted(self.cut_short)]
        return trace.model_copy(update={"events": (*self.submits.values(), *aborts, *others)})


def requests_of(trace: Trace, taken: Sequence[Delivery]) -> Requests:
    """Return the requests of a run whose explicit trace this is."""
    spoiled = {event.request for event in trace.events if isinstance(event, SpoilLogit | NanLogits)}
    last = {given.submit.request: given for given in taken}
    submits: dict[str, Submit] = {}
    outputs, names, cut_short = {}, {}, set()
    for number, given in enumerate(taken):
        name = given.submit.request
        own = name if given is last[name] else _another(f"{name}.{number}", {*last, *submits})
        if given.output is not None:
            submits[own], outputs[own], names[own] = (
                given.submit.model_copy(update={"request": own, "session": None}),
                given.output,
                name,
            )
            if name in spoiled or given.output.finish_reason == ABORTED:
                cut_short.add(own)
    return Requests(submits, outputs, names, frozenset(cut_short))


def numbered(trace: Trace, taken: Sequence[Delivery]) -> Trace:
    """Return an explicit trace with its requests as an engine numbers them: in the order in which it took them in."""
    others = [event for event in trace.events if not isinstance(event, Submit)]
    return trace.model_copy(update={"events": (*[given.submit for given in taken], *others)})


def _another(name: str, names: Set[str]) -> str:
    """Return a name that is none of `names`."""
    return next(each for count in itertools.count() if (each := f"{name[-NAME_MAX:]}{'.' * count}") not in names)


def one_by_one(trace: Trace, submits: Iterable[Submit], capabilities: Capabilities) -> Trace:
    """Return a run of requests one after the other: synchronous, undisturbed, without drafts or a prefix cache.

    Each is computed in one chunk, in a pool that has room for more than it needs, with the weights of the trace.
    """
    spec = trace.spec
    keys = {
        "depth": 1,
        "num_speculative_tokens": 0,
        "max_num_seqs": 1,
        "max_num_batched_tokens": max(spec.max_num_batched_tokens, spec.max_model_len),
        "num_blocks": max(spec.num_blocks, 2 * spec.max_blocks_per_request),
    }
    allowed = {key: value for key, value in keys.items() if capabilities.allows(key, value)}
    plain = {key: EngineSpec.model_fields[key].default for key in _UNDISTURBED}
    update = {**{key: value for key, value in plain.items() if capabilities.allows(key, value)}, **allowed}
    first = {"tick": 0, "at": PLACES[0]}
    loads = [event.model_copy(update=first) for event in trace.events if isinstance(event, LoadWeights)]
    events = (*loads, *[submit.model_copy(update={**first, "priority": 0}) for submit in submits])
    return trace.model_copy(
        update={"spec": spec.model_copy(update=update), "events": events, "schedule": Schedule(), "expect": {}}
    )


def references(given: Trace, trace: Trace, requests: Requests, capabilities: Capabilities) -> Iterator[ReferenceRun]:
    """Yield the runs that the outputs of a trace are compared with, each with its kind.

    It was `given`, and has come to have the prompts of `trace`, in which parts of sessions are requests.
    """
    if trace.spec.depth == 1 and not trace.spec.has_connector and trace.schedule.policy != "eager":
        # A synchronous engine is held against itself: what no order keeps apart may differ. A part of a session begins
        # later than a request that was submitted with it: what an event does to it is other.
        yield Reference.SYNCHRONOUS, given.model_copy(update={"schedule": Schedule()})
    calm = undisturbed(trace, any(submit.session is not None for submit in given.submits()))
    if calm is None:
        return
    if calm is not trace:
        trace, requests = calm, requests.among(calm.submits())
    if (trace.spec.depth > 1 or trace.spec.has_connector) and capabilities.allows("depth", 1):
        yield Reference.SYNCHRONOUS, synchronous(trace)
    if trace.schedule.policy != "eager" and capabilities.is_costly:
        # Later references are compared under eager.
        return
    if trace.spec.num_speculative_tokens and capabilities.allows("num_speculative_tokens", 0):
        yield Reference.WITHOUT_SPECULATION, without_drafts(trace)
    if requests.submits:
        # In the reverse order: a request that takes over a row, slot or block of another one in the trace comes before
        # that one here. So state that a row keeps from its last request is not the same in both runs.
        yield Reference.ALONE, one_by_one(trace, [*requests.submits.values()][::-1], capabilities)


def undecided_trace(trace: Trace, submit: Submit, capabilities: Capabilities) -> Trace:
    """Return a run of one request alone that shows the logprobs of the three likeliest tokens it chose among."""
    asking = with_params(submit, {"num_logprobs": NUM_UNDECIDED, "logprob_tokens": ()})
    found = one_by_one(undisturbed(trace) or trace, [asking], capabilities)
    return found.model_copy(update={"spec": found.spec.model_copy(update={"logprobs_mode": "processed"})})
