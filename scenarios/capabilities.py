"""Capabilities of an engine: supported events, request features and specifications.

An unsupported scenario is refused in one line; a generated trace is changed until it is supported. Both use limits:
functions that return how an event or a specification exceeds them, and a supported replacement. This module has the
kinds of limits; each target lists the limits of its engine, with reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, get_args

from scenarios.events import (
    HOOKS,
    SUBMIT_FEATURES,
    AnyEvent,
    Continuation,
    Event,
    Hook,
    Policy,
    PromptDraw,
    Schedule,
    Submit,
)
from scenarios.sampling import PARAMS, SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

PLAIN = SamplingParams()
# The feature of a prompt that continues another request.
CONTINUES = "continues"
EVENTS = tuple(event.model_fields["do"].default for event in get_args(get_args(AnyEvent)[0]))
FEATURES = (*SUBMIT_FEATURES, CONTINUES, *PARAMS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Excess(Generic[T]):
    """A value that the engine does not support: its key, the value, the allowed values, why.

    `fixed` is the event, specification or trace with a supported value; None removes an event.
    """

    key: str
    seen: object
    allowed: str
    fixed: T | None
    reason: str = ""

    def message(self, where: str = "") -> str:
        """Return one line: path, value (unless None), allowed values and reason."""
        path = ".".join(part for part in (where, self.key) if part)
        finding = f"{self.seen}; {self.allowed}" if self.seen is not None else self.allowed
        return ": ".join(part for part in (path, finding, self.reason) if part)


class EventLimit(Protocol):
    """A callable that checks an event of a trace against a limit of an engine."""

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return an `Excess` if an engine with `spec` does not support the event, else None."""


SpecLimit: TypeAlias = Callable[[EngineSpec], Excess[EngineSpec] | None]


@dataclass(frozen=True, slots=True)
class Without:
    """Request features that an engine lacks when the predicate `when` is true of its spec."""

    features: tuple[str, ...]
    when: Callable[[EngineSpec], bool]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Limit: a key of one kind of event must have one of `values`.

    The first of `values` replaces an unsupported value.
    """

    kind: type[Event]
    key: str
    values: tuple[str, ...]
    name: str

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return an `Excess` if the event's key has another value, else None."""
        value = getattr(event, self.key) if isinstance(event, self.kind) else None
        if value is None or value in self.values:
            return None
        fixed = event.model_copy(update={self.key: self.values[0]})
        return Excess(self.key, value, f"allowed {self.name} are {join_names(self.values)}", fixed)


@dataclass(frozen=True, slots=True)
class AtHooks:
    """Limit: events of each kind must happen at one of some hooks (points of a step).

    `hooks` allow any kind of event; `by_event` has more hooks for some kinds.
    """

    hooks: tuple[Hook, ...]
    by_event: Mapping[str, tuple[Hook, ...]]

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return an `Excess` if the event happens at another hook, else None.

        `fixed` moves the event to the next supported hook, perhaps in the next tick.
        """
        allowed = tuple(at for at in HOOKS if at in (*self.hooks, *self.by_event.get(event.do, ())))
        if event.at in allowed:
            return None
        later = next((at for at in HOOKS[HOOKS.index(event.at) :] if at in allowed), None)
        moved = {"at": allowed[0], "tick": event.tick + 1} if later is None else {"at": later}
        return Excess("at", event.at, f"allowed are {join_names(allowed)}", event.model_copy(update=moved))


@dataclass(frozen=True, slots=True)
class ParamAtMost:
    """Limit: a sampling parameter of a request must be at most the result of `most`."""

    key: str
    most: Callable[[Submit], float]

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return an `Excess` if the request's parameter is larger, else None."""
        if not isinstance(event, Submit) or (value := getattr(event.params, self.key)) <= (most := self.most(event)):
            return None
        return Excess(f"params.{self.key}", value, f"at most {most} is allowed", with_params(event, {self.key: most}))


@dataclass(frozen=True, slots=True)
class KeyAtMost:
    """Limit: a key of the specification must be at most the result of `most`.

    `by` names what sets this value.
    """

    key: str
    most: Callable[[EngineSpec], int]
    by: str

    def __call__(self, spec: EngineSpec) -> Excess[EngineSpec] | None:
        """Return an `Excess` if the specification's value is larger, else None."""
        if (value := getattr(spec, self.key)) <= (most := self.most(spec)):
            return None
        return Excess(self.key, value, f"{self.by} allows at most {most}", spec.model_copy(update={self.key: most}))


@dataclass(frozen=True, slots=True)
class ExcludedBy:
    """Limit: `key` must be off if another key has a given value.

    `other` is that other key and its value; the fix sets the other key to `fallback`.
    """

    key: str
    other: tuple[str, str]
    fallback: str
    reason: str

    def __call__(self, spec: EngineSpec) -> Excess[EngineSpec] | None:
        """Return an `Excess` if `key` is on and the other key has that value, else None."""
        seen, (other, value) = getattr(spec, self.key), self.other
        if not seen or getattr(spec, other) != value:
            return None
        allowed = f"with {other} {value} {type(seen)()} is allowed"
        return Excess(self.key, seen, allowed, spec.model_copy(update={other: self.fallback}), self.reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an engine that no other field of `Capabilities` expresses.

    They apply to request features, to events and to the specification, each tuple in its order.
    """

    features: tuple[Without, ...] = ()
    events: tuple[EventLimit, ...] = ()
    spec: tuple[SpecLimit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine supports and reports, as its target declares it.

    Supported input:
    - `events`: kinds of events in addition to `submit`; `hooks`: hooks of a step at which any event may happen;
      `hooks_by_event`: more hooks for some kinds of events;
    - `features`: request features: fields of a submit, sampling parameters, and a prompt that continues a request;
    - `spec`: the allowed values of each key of the specification, the fallback first; an empty tuple allows any value,
      and a missing key must have its default;
    - `devices`: each device with the lanes that a schedule advances on it (none if schedules have no effect);
      `policies`: schedule policies; `delays`: whether a schedule may delay source lines;
    - `probes`: the probes that it counts; `faults`: whether historical bugs can be switched on;
    - `limits`: further limits; `situations`: additional situations of generated traces.

    Reported data: `planes` are compared in addition to outputs; `logs_decisions` says whether decisions are logged. If
    `ranks_are_processes`, an engine with several ranks reports only its scheduler: model runners are other processes.

    Comparison of outputs: the engine's arithmetic may choose another token if two logits are closer than
    `logit_margin`. `words_from_prompt` says whether a bad word may begin in the prompt. If `is_costly`, a trace runs
    under few schedules, and data that no schedule changes is compared under the eager policy only.
    """

    events: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = HOOKS
    hooks_by_event: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    spec: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"sim": ()})
    policies: tuple[Policy, ...] = get_args(Policy)
    delays: bool = False
    probes: tuple[str, ...] = ()
    faults: bool = False
    limits: Limits = Limits()
    # Of type scenarios.generation.situation.Situation; that module imports this one.
    situations: tuple[Any, ...] = ()
    planes: tuple[str, ...] = ()
    logs_decisions: bool = False
    ranks_are_processes: bool = False
    logit_margin: float = 0.0
    words_from_prompt: bool = True
    is_costly: bool = False

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes (host, streams) of the first device that has lanes; a schedule advances them."""
        return next((lanes for lanes in self.devices.values() if lanes), ())

    @property
    def finds_races(self) -> bool:
        """Whether the engine records its memory accesses and reports races (unordered accesses)."""
        return "races" in self.planes

    @property
    def scripts_drafts(self) -> bool:
        """Return whether the trace decides which draft tokens are right; else a drafter model does."""
        return "accept" in self.features

    def features_on(self, spec: EngineSpec) -> tuple[str, ...]:
        """Return the request features that an engine with this specification supports."""
        without = {each for limit in self.limits.features if limit.when(spec) for each in limit.features}
        return tuple(feature for feature in FEATURES if feature in self.features and feature not in without)

    def allowed(self, key: str) -> tuple[Any, ...] | None:
        """Return the allowed values of a key; the first one replaces others. None: all are allowed."""
        values = self.spec.get(key)
        return (EngineSpec.model_fields[key].default,) if values is None else values or None

    def allows(self, key: str, value: Any) -> bool:
        """Return whether the engine supports a value of a key of the specification."""
        allowed = self.allowed(key)
        return allowed is None or value in allowed


def lacking(trace: Trace, capabilities: Capabilities) -> str | None:
    """Return a message about the first unsupported value of a trace, or None."""
    of_events = event_limits(capabilities, trace.spec)
    for index, event in enumerate(trace.events):
        for of_event in of_events:
            if (asked := of_event(event)) is not None:
                return asked.message(f"events.{index}")
    for of_spec in spec_limits(capabilities):
        if (misfit := of_spec(trace.spec)) is not None:
            return misfit.message("spec")
    for of_trace in trace_limits(capabilities):
        if (beyond := of_trace(trace)) is not None:
            return beyond.message()
    return None


def event_limits(
    capabilities: Capabilities, spec: EngineSpec
) -> Sequence[Callable[[AnyEvent], Excess[AnyEvent] | None]]:
    """Return the limits on an event in an engine with this specification."""
    allowed = capabilities.features_on(spec)
    lacks = tuple(feature for feature in FEATURES if feature not in allowed)
    return [
        partial(_kind, spec=spec, kinds=("submit", *capabilities.events)),
        partial(AtHooks(capabilities.hooks, capabilities.hooks_by_event), spec=spec),
        partial(_features, spec=spec, allowed=allowed, lacks=lacks),
        *(partial(limit, spec=spec) for limit in capabilities.limits.events),
    ]


def _kind(event: AnyEvent, spec: EngineSpec, kinds: tuple[str, ...]) -> Excess[AnyEvent] | None:
    """Return an `Excess` if the engine does not support the kind of event, else None."""
    return None if event.do in kinds else Excess("", event.do, f"allowed events are {join_names(kinds)}", None)


def _features(
    event: AnyEvent, spec: EngineSpec, allowed: tuple[str, ...], lacks: tuple[str, ...]
) -> Excess[AnyEvent] | None:
    """Return an `Excess` if the request uses a feature that the engine lacks, else None."""
    if not isinstance(event, Submit):
        return None
    for feature in lacks:
        if uses_feature(event, feature):
            seen = f"a request with {feature}"
            return Excess("", seen, f"allowed features are {join_names(allowed)}", _without_feature(event, feature))
    return None


def uses_feature(event: Submit, feature: str) -> bool:
    """Return whether a request uses a feature."""
    if feature in SUBMIT_FEATURES:
        return getattr(event, feature) not in (_default(feature), *SUBMIT_FEATURES[feature].plain)
    if feature == CONTINUES:
        return isinstance(event.prompt, Continuation)
    return bool(getattr(event.params, feature) != getattr(PLAIN, feature))


def _default(feature: str) -> object:
    return Submit.model_fields[feature].default


def _without_feature(event: Submit, feature: str) -> Submit:
    """Return the request without a feature."""
    if feature in SUBMIT_FEATURES:
        return event.model_copy(update={feature: _default(feature)})
    if feature == CONTINUES:
        return event.model_copy(update={"prompt": PromptDraw(tokens=event.prompt_length)})
    return with_params(event, {feature: getattr(PLAIN, feature)})


def with_params(event: Submit, params: Mapping[str, object]) -> Submit:
    """Return the request with new values of some sampling parameters."""
    return event.model_copy(update={"params": event.params.model_copy(update=params)})


def spec_limits(capabilities: Capabilities) -> Sequence[SpecLimit]:
    """Return the limits on the specification of a trace, as callables."""
    return [partial(_values, capabilities=capabilities), *capabilities.limits.spec]


def _values(spec: EngineSpec, capabilities: Capabilities) -> Excess[EngineSpec] | None:
    """Return an `Excess` for the first specification key with an unsupported value, else None."""
    for key, value in spec:
        allowed = capabilities.allowed(key)
        if allowed is not None and value not in allowed:
            return Excess(key, value, f"allowed are {join_names(allowed)}", spec.model_copy(update={key: allowed[0]}))
    return None


def trace_limits(capabilities: Capabilities) -> Sequence[Callable[[Trace], Excess[Trace] | None]]:
    """Return the limits on a trace's schedule, expected probes and faults."""
    return [partial(limit, capabilities=capabilities) for limit in (_schedule, _probes, _faults)]


def _schedule(trace: Trace, capabilities: Capabilities) -> Excess[Trace] | None:
    """Return an `Excess` if the engine's device does not support the schedule, else None."""
    policy = trace.schedule.policy
    if policy not in capabilities.policies:
        return Excess(
            "schedule.policy", policy, f"allowed are {join_names(capabilities.policies)}", _unscheduled(trace)
        )
    if not capabilities.lanes and trace.schedule != Schedule():
        return Excess("schedule", None, "the engine has no lanes to schedule on this device", _unscheduled(trace))
    if (trace.schedule.delays or trace.schedule.joined) and not capabilities.delays:
        return Excess("schedule", None, "delays and joined streams need a GPU", _unscheduled(trace))
    return None


def _unscheduled(trace: Trace) -> Trace:
    """Return the trace with the default schedule."""
    return trace.model_copy(update={"schedule": Schedule()})


def _probes(trace: Trace, capabilities: Capabilities) -> Excess[Trace] | None:
    """Return an `Excess` if the trace expects a probe that the engine does not count, else None."""
    for probe in trace.expect:
        if probe not in capabilities.probes:
            others = {each: least for each, least in trace.expect.items() if each != probe}
            fixed = trace.model_copy(update={"expect": others})
            return Excess(f"expect.{probe}", None, f"allowed probes are {join_names(capabilities.probes)}", fixed)
    return None


def _faults(trace: Trace, capabilities: Capabilities) -> Excess[Trace] | None:
    """Return an `Excess` if the trace has faults and the engine has none, else None."""
    if not trace.faults or capabilities.faults:
        return None
    fixed = trace.model_copy(update={"faults": ()})
    return Excess("faults", trace.faults[0], "the engine has no faults to switch on", fixed)


def join_names(names: tuple[Any, ...]) -> str:
    """Return names as text, separated by commas; "none" if there are none."""
    return ", ".join(map(str, names)) or "none"
