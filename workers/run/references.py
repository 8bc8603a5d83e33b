"""Reference runs of a trace: changed traces in which requests must have the same outputs.

Output tokens must be equal for greedy requests, and for sampled requests with random numbers by position.
At a near tie of two logits both tokens are right.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from scenarios.capabilities import Capabilities, with_params
from scenarios.events import (
    CONTROL_EVENTS,
    HOOKS,
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
from workers.judge.efficiency import Effort
from workers.judge.outputs import FailedRun, Outputs
from workers.record.rules import Reference
from workers.run.agreed_run import AgreedRun

# Optional optimisations of a specification that only change how steps overlap or are batched.
_SWITCHES = ("plan_stream", "relay_lengths", "mixed_chunks")
_RANKS = ("tensor_ranks", "pipeline_ranks", "data_ranks")
# Keys of a specification: with other values than the defaults, a request's tokens may depend on other requests, on the
# KV cache, or on the order of steps.
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
    *_RANKS,
)
# The finish reason of an aborted request.
ABORTED = "abort"
# The part of a request's name that a new unique name keeps.
NAME_MAX = 48
# Number of logprobs per token in a run that checks for near ties: the token itself and the three most likely ones.
NUM_TIE_LOGPROBS = 4

# A kind of reference run, and its trace.
ReferenceRun: TypeAlias = tuple[Reference, Trace]


@dataclass(slots=True)
class References:
    """Outputs of a trace's reference runs; each run is shared by all schedules of the trace.

    - `until`: the last kind of reference run to compare with.
    - `only`: the single kind to compare with; the first kind of a trace that does not have it.
    - `with_release`: with `only`, whether the work is also compared with the release, for an overlay of its sources.
    - `agreed`: for an engine that logs its decisions, the last run that agreed.
    """

    until: Reference | Literal["all", "none"] = "all"
    only: Reference | None = None
    with_release: bool = False
    agreed: AgreedRun | None = None
    # By trace, the draft tokens that its run proposed, if the engine reports them.
    proposed: dict[str, Proposals] = field(default_factory=dict)
    # By trace, the work of its run, if the engine reports its steps.
    efforts: dict[str, Effort] = field(default_factory=dict)
    _outputs: dict[str, Outputs | FailedRun] = field(default_factory=dict)

    @property
    def needs_release(self) -> bool:
        """Return whether the work of a run is compared with the release."""
        return self.with_release or (self.only is None and self.until in ("all", Reference.RELEASE))

    def needed(self, references: Iterable[ReferenceRun]) -> Iterator[ReferenceRun]:
        """Yield the reference runs, of one kind only (`only`) or up to a kind (`until`)."""
        if self.only is not None:
            every = list(references)
            yield from [each for each in every if each[0] is self.only][:1] or every[:1]
            return
        for kind, trace in references if self.until not in ("none", Reference.RELEASE) else ():
            yield kind, trace
            if kind == self.until:
                return

    def outputs_of(self, trace: Trace, run: Callable[[Trace], Outputs | FailedRun]) -> Outputs | FailedRun:
        """Return the outputs (or error) of a reference trace; call `run` only the first time."""
        key = trace.model_dump_json()
        if key not in self._outputs:
            self._outputs[key] = run(trace)
        return self._outputs[key]


def synchronous(trace: Trace) -> Trace:
    """Return the trace without async scheduling, KV connector and CUDA graphs, on one rank.

    With depth 1, each step is processed before the next one is scheduled.
    """
    besides = {"transfer": None, "offloading": None, "handoff": None, "graphs": "none", **dict.fromkeys(_RANKS, 1)}
    spec = trace.spec.model_copy(update={"depth": 1, **besides, **dict.fromkeys(_SWITCHES, False)})
    return trace.model_copy(update={"spec": spec, "schedule": Schedule()})


def without_drafts(trace: Trace) -> Trace:
    """Return the same trace for a synchronous engine without speculative decoding."""
    trace = synchronous(trace)
    nothing = {"num_speculative_tokens": 0, "tree_width": 1}
    return trace.model_copy(update={"spec": trace.spec.model_copy(update=nothing)})


def without_control_plane(trace: Trace, has_sessions: bool = False) -> Trace | None:
    """Return the trace without control events; None if old weights may affect its requests.

    If the trace loads weights, the last ones are loaded at the start, and only the requests submitted after them are
    kept. There is none if these requests may use KV cache entries of older weights, by a prefix cache or by sessions.
    """
    events = sorted(trace.events, key=lambda event: (event.tick, HOOKS.index(event.at)))
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
    """The accepted requests of a run, with unique names, and their outputs.

    `names` has the original name of each request; the last request of a name keeps it. `cut_short` are the aborted
    requests and those with spoiled logits.
    """

    submits: Mapping[str, Submit]
    outputs: Outputs
    names: Mapping[str, str]
    cut_short: frozenset[str]

    def among(self, submits: Sequence[Submit]) -> "Requests":
        """Return the requests with one of these submits."""
        kept = {
            own: submit
            for own, submit in self.submits.items()
            if submit.model_copy(update={"request": self.names[own]}) in submits
        }
        return replace(self, submits=kept)

    def judged(self, trace: Trace) -> Trace:
        """Return a trace with these requests, and with the events that concern no request."""
        others = [event for event in trace.events if not isinstance(event, Submit | Abort | Spoil | NanLogits)]
        aborts = [Abort(tick=0, request=name) for name in sorted(self.cut_short)]
        return trace.model_copy(update={"events": (*self.submits.values(), *aborts, *others)})


def requests_of(trace: Trace, taken: Sequence[Delivery]) -> Requests:
    """Return the accepted requests of a run, from its explicit trace (prompts as token ids)."""
    spoiled = {event.request for event in trace.events if isinstance(event, SpoilLogit | NanLogits)}
    last = {given.submit.request: given for given in taken}
    submits: dict[str, Submit] = {}
    outputs, names, cut_short = {}, {}, set()
    for number, given in enumerate(taken):
        name = given.submit.request
        own = name if given is last[name] else _unique_name(f"{name}.{number}", {*last, *submits})
        if given.output is not None:
            submits[own], outputs[own], names[own] = (
                given.submit.model_copy(update={"request": own, "session": None}),
                given.output,
                name,
            )
            if name in spoiled or given.output.finish_reason == ABORTED:
                cut_short.add(own)
    return Requests(submits, outputs, names, frozenset(cut_short))


def with_accepted_submits(trace: Trace, taken: Sequence[Delivery]) -> Trace:
    """Return the trace with the accepted submits only, numbered as in the engine."""
    others = [event for event in trace.events if not isinstance(event, Submit)]
    return trace.model_copy(update={"events": (*[given.submit for given in taken], *others)})


def _unique_name(name: str, names: Set[str]) -> str:
    """Return `name`, or a similar name that is not in `names`."""
    return next(each for count in itertools.count() if (each := f"{name[-NAME_MAX:]}{'.' * count}") not in names)


def one_by_one(trace: Trace, submits: Iterable[Submit], capabilities: Capabilities) -> Trace:
    """Return a trace that runs the requests one after another, without drafts and prefix cache.

    Each prompt is computed in one prefill chunk, with more KV-cache blocks than it needs, and with the trace's weights.
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
    first = {"tick": 0, "at": HOOKS[0]}
    loads = [event.model_copy(update=first) for event in trace.events if isinstance(event, LoadWeights)]
    events = (*loads, *[submit.model_copy(update={**first, "priority": 0}) for submit in submits])
    return trace.model_copy(
        update={"spec": spec.model_copy(update=update), "events": events, "schedule": Schedule(), "expect": {}}
    )


def references(given: Trace, trace: Trace, requests: Requests, capabilities: Capabilities) -> Iterator[ReferenceRun]:
    """Yield the reference runs of a trace, each with its kind.

    `given` is the original trace; `trace` is the same with explicit prompts, and with session parts as requests.
    """
    if trace.spec.depth == 1 and not trace.spec.has_connector and trace.schedule.policy != "eager":
        # Compare a synchronous engine with itself under eager: unordered accesses may change its outputs. Use the
        # original trace: as an independent request, a session part would begin earlier relative to the events.
        yield Reference.SYNCHRONOUS, given.model_copy(update={"schedule": Schedule()})
    calm = without_control_plane(trace, any(submit.session is not None for submit in given.submits()))
    if calm is None:
        return
    if calm is not trace:
        trace, requests = calm, requests.among(calm.submits())
    if (trace.spec.depth > 1 or trace.spec.has_connector or trace.spec.num_ranks > 1) and capabilities.allows(
        "depth", 1
    ):
        yield Reference.SYNCHRONOUS, synchronous(trace)
    if trace.schedule.policy != "eager" and capabilities.is_costly:
        # The other reference runs are compared under eager.
        return
    if trace.spec.num_speculative_tokens and capabilities.allows("num_speculative_tokens", 0):
        yield Reference.WITHOUT_SPECULATION, without_drafts(trace)
    if requests.submits:
        # In reverse order: if request B reuses a row, slot or block of request A in the trace, B runs before A here. So
        # stale state of the row's last request differs between both runs.
        yield Reference.ALONE, one_by_one(trace, [*requests.submits.values()][::-1], capabilities)


def near_tie_trace(trace: Trace, submit: Submit, capabilities: Capabilities) -> Trace:
    """Return a trace that runs one request alone and reports its top-3 logprobs."""
    asking = with_params(submit, {"num_logprobs": NUM_TIE_LOGPROBS, "logprob_tokens": ()})
    found = one_by_one(without_control_plane(trace) or trace, [asking], capabilities)
    return found.model_copy(update={"spec": found.spec.model_copy(update={"logprobs_mode": "processed"})})
