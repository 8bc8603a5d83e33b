"""Capabilities of an engine: which events, request features and specifications it can be asked for, and what it shows.

A scenario that asks for more is refused in one line; a generated trace is brought within them. Both follow from
limits: functions that return how an event or a specification exceeds them, and what to ask for instead. Here are kinds
of them; which an engine has, and why, its target says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, get_args

from scenarios.events import (
    OF_SUBMITS,
    PLACES,
    AnyEvent,
    Continuation,
    Event,
    Place,
    Policy,
    PromptDraw,
    Schedule,
    Submit,
)
from scenarios.sampling import PARAMS, SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

PLAIN = SamplingParams()
# A prompt that continues another request.
CONTINUES = "continues"
EVENTS = tuple(event.model_fields["do"].default for event in get_args(get_args(AnyEvent)[0]))
FEATURES = (*OF_SUBMITS, CONTINUES, *PARAMS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Excess(Generic[T]):
    """One place where more is asked for than a limit allows: its key, what is seen and what is allowed there, and why.

    `mended` asks for what is allowed instead; an event that is None there is left out.
    """

    key: str
    seen: object
    allowed: str
    mended: T | None
    reason: str = ""

    def message(self, where: str = "") -> str:
        """Return one line: the place, what was seen (None where the place says it), what is allowed, and why."""
        place = ".".join(part for part in (where, self.key) if part)
        told = f"{self.seen}; {self.allowed}" if self.seen is not None else self.allowed
        return ": ".join(part for part in (place, told, self.reason) if part)


class EventLimit(Protocol):
    """Limit of what one event asks for."""

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return how an event exceeds it in an engine of a specification, or None."""


SpecLimit: TypeAlias = Callable[[EngineSpec], Excess[EngineSpec] | None]


@dataclass(frozen=True, slots=True)
class Without:
    """Features of a request that an engine does not have `when` its specification is such."""

    features: tuple[str, ...]
    when: Callable[[EngineSpec], bool]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Limit: a key of one kind of event has one of some values; the first replaces the others."""

    kind: type[Event]
    key: str
    values: tuple[str, ...]
    name: str

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return the excess of an event of the kind with another value of the key."""
        value = getattr(event, self.key) if isinstance(event, self.kind) else None
        if value is None or value in self.values:
            return None
        mended = event.model_copy(update={self.key: self.values[0]})
        return Excess(self.key, value, f"allowed {self.name} are {listed(self.values)}", mended)


@dataclass(frozen=True, slots=True)
class Places:
    """Limit: an event happens at some places of a step, some kinds of events at other places as well."""

    places: tuple[Place, ...]
    besides: Mapping[str, tuple[Place, ...]]

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return the excess of an event at another place; it happens at the next one that there is."""
        allowed = tuple(at for at in PLACES if at in (*self.places, *self.besides.get(event.do, ())))
        if event.at in allowed:
            return None
        later = next((at for at in PLACES[PLACES.index(event.at) :] if at in allowed), None)
        moved = {"at": allowed[0], "tick": event.tick + 1} if later is None else {"at": later}
        return Excess("at", event.at, f"allowed are {listed(allowed)}", event.model_copy(update=moved))


@dataclass(frozen=True, slots=True)
class ParamAtMost:
    """Limit: a sampling parameter of a request has a maximum."""

    key: str
    most: Callable[[Submit], float]

    def __call__(self, event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
        """Return the excess of a request that has more."""
        if not isinstance(event, Submit) or (value := getattr(event.params, self.key)) <= (most := self.most(event)):
            return None
        return Excess(f"params.{self.key}", value, f"at most {most} is allowed", with_params(event, {self.key: most}))


@dataclass(frozen=True, slots=True)
class KeyAtMost:
    """Limit: a key of the specification has a maximum, which the value that `by` names sets."""

    key: str
    most: Callable[[EngineSpec], int]
    by: str

    def __call__(self, spec: EngineSpec) -> Excess[EngineSpec] | None:
        """Return the excess of a specification that has more."""
        if (value := getattr(spec, self.key)) <= (most := self.most(spec)):
            return None
        return Excess(self.key, value, f"{self.by} allows at most {most}", spec.model_copy(update={self.key: most}))


@dataclass(frozen=True, slots=True)
class NothingBeside:
    """Limit: a key is at nothing with a value of another key (`beside`), which is `otherwise` then."""

    key: str
    beside: tuple[str, str]
    otherwise: str
    reason: str

    def __call__(self, spec: EngineSpec) -> Excess[EngineSpec] | None:
        """Return the excess of a specification that has something with the value."""
        seen, (other, value) = getattr(spec, self.key), self.beside
        if not seen or getattr(spec, other) != value:
            return None
        allowed = f"with {other} {value} {type(seen)()} is allowed"
        return Excess(self.key, seen, allowed, spec.model_copy(update={other: self.otherwise}), self.reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine cannot do of its other capabilities, in the order in which limits are applied."""

    features: tuple[Without, ...] = ()
    events: tuple[EventLimit, ...] = ()
    spec: tuple[SpecLimit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one engine declares of itself.

    What it can be asked for: `events` names the kinds of events besides `submit`, `places` where in a step any may
    happen, `places_besides` where else those of some kinds may; `features` what a request may ask for: fields of a
    submit and of its sampling parameters, and a prompt that goes on from another request. `spec` has the values allowed
    for each key of the specification, the one to fall back on first, none for a key that may be anything; a key that
    it lacks stays at its default. `devices` are those it runs on, each with the lanes that a schedule advances there,
    none where schedules mean nothing; schedules have one of the `policies`, and `delays` says whether they may also
    hold up lines of its program. `probes` are those it counts, `faults` says whether historical bugs can be switched
    on in it. What it lacks beyond this is in `limits`; generated traces have its own `situations` as well.

    What it shows: `planes` names what is shown with outputs, `logs_decisions` says whether it shows decisions.

    What decides how its outputs are compared: its arithmetic may decide otherwise where two logits are closer than
    `logit_margin`. A bad word may begin in a prompt, as it may here, or must lie in the output: `words_from_prompt`.
    Where runs are costly, a trace is run under few schedules, and what no schedule changes is compared under eager.
    """

    events: tuple[str, ...] = ()
    places: tuple[Place, ...] = PLACES
    places_besides: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    spec: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"sim": ()})
    policies: tuple[Policy, ...] = get_args(Policy)
    delays: bool = False
    probes: tuple[str, ...] = ()
    faults: bool = False
    limits: Limits = Limits()
    # Values of scenarios.generation.situation, which knows capabilities.
    situations: tuple[Any, ...] = ()
    planes: tuple[str, ...] = ()
    logs_decisions: bool = False
    logit_margin: float = 0.0
    words_from_prompt: bool = True
    is_costly: bool = False

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that a schedule advances, on whichever device there are any."""
        return next((lanes for lanes in self.devices.values() if lanes), ())

    @property
    def finds_races(self) -> bool:
        """Whether it watches its own accesses to memory, and says which of them nothing orders."""
        return "races" in self.planes

    @property
    def scripts_drafts(self) -> bool:
        """Whether the trace says which drafts are right; else which ones there are follows from its drafters alone."""
        return "accept" in self.features

    def features_on(self, spec: EngineSpec) -> tuple[str, ...]:
        """Return the features that a request may ask for in an engine of a specification."""
        without = {each for limit in self.limits.features if limit.when(spec) for each in limit.features}
        return tuple(feature for feature in FEATURES if feature in self.features and feature not in without)

    def allowed(self, key: str) -> tuple[Any, ...] | None:
        """Return the values allowed for a key of the specification, the one to fall back on first; None if any is."""
        values = self.spec.get(key)
        return (EngineSpec.model_fields[key].default,) if values is None else values or None

    def allows(self, key: str, value: Any) -> bool:
        """Tell whether a key of the specification may have a value."""
        allowed = self.allowed(key)
        return allowed is None or value in allowed


def lacking(trace: Trace, capabilities: Capabilities) -> str | None:
    """Say what a trace asks for that an engine cannot do, the first place in it, and what is allowed there."""
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
    """Return the limits of an event in an engine of a specification."""
    allowed = capabilities.features_on(spec)
    lacks = tuple(feature for feature in FEATURES if feature not in allowed)
    return [
        partial(_kind, spec=spec, kinds=("submit", *capabilities.events)),
        partial(Places(capabilities.places, capabilities.places_besides), spec=spec),
        partial(_features, spec=spec, allowed=allowed, lacks=lacks),
        *(partial(limit, spec=spec) for limit in capabilities.limits.events),
    ]


def _kind(event: AnyEvent, spec: EngineSpec, kinds: tuple[str, ...]) -> Excess[AnyEvent] | None:
    """Limit: events are of some kinds."""
    return None if event.do in kinds else Excess("", event.do, f"allowed events are {listed(kinds)}", None)


def _features(
    event: AnyEvent, spec: EngineSpec, allowed: tuple[str, ...], lacks: tuple[str, ...]
) -> Excess[AnyEvent] | None:
    """Limit: a request asks for features that are allowed, and for none that an engine lacks."""
    if not isinstance(event, Submit):
        return None
    for feature in lacks:
        if asks(event, feature):
            seen = f"a request with {feature}"
            return Excess("", seen, f"allowed features are {listed(allowed)}", _not_asking(event, feature))
    return None


def asks(event: Submit, feature: str) -> bool:
    """Tell whether a request asks for a feature."""
    if feature in OF_SUBMITS:
        return getattr(event, feature) not in (_default(feature), *OF_SUBMITS[feature].plain)
    if feature == CONTINUES:
        return isinstance(event.prompt, Continuation)
    return bool(getattr(event.params, feature) != getattr(PLAIN, feature))


def _default(feature: str) -> object:
    return Submit.model_fields[feature].default


def _not_asking(event: Submit, feature: str) -> Submit:
    """Return a request that does not ask for a feature."""
    if feature in OF_SUBMITS:
        return event.model_copy(update={feature: _default(feature)})
    if feature == CONTINUES:
        return event.model_copy(update={"prompt": PromptDraw(tokens=event.prompt_length)})
    return with_params(event, {feature: getattr(PLAIN, feature)})


def with_params(event: Submit, params: Mapping[str, object]) -> Submit:
    """Return a request with other values of some sampling parameters."""
    return event.model_copy(update={"params": event.params.model_copy(update=params)})


def spec_limits(capabilities: Capabilities) -> Sequence[SpecLimit]:
    """Return the limits of a specification."""
    return [partial(_values, capabilities=capabilities), *capabilities.limits.spec]


def _values(spec: EngineSpec, capabilities: Capabilities) -> Excess[EngineSpec] | None:
    """Limit: keys of a specification have values that are allowed."""
    for key, value in spec:
        allowed = capabilities.allowed(key)
        if allowed is not None and value not in allowed:
            return Excess(key, value, f"allowed are {listed(allowed)}", spec.model_copy(update={key: allowed[0]}))
    return None


def trace_limits(capabilities: Capabilities) -> Sequence[Callable[[Trace], Excess[Trace] | None]]:
    """Return the limits of a trace, apart from its events and its specification."""
    return [partial(limit, capabilities=capabilities) for limit in (_schedule, _probes, _faults)]


def _schedule(trace: Trace, capabilities: Capabilities) -> Excess[Trace] | None:
    """Limit: a schedule has one of the policies, and there are lanes that it can advance."""
    policy = trace.schedule.policy
    if policy not in capabilities.policies:
        return Excess("schedule.policy", policy, f"allowed are {listed(capabilities.policies)}", _unscheduled(trace))
    if not capabilities.lanes and trace.schedule != Schedule():
        return Excess("schedule", None, "the engine has no lanes to schedule on this device", _unscheduled(trace))
    if (trace.schedule.delays or trace.schedule.joined) and not capabilities.delays:
        return Excess("schedule", None, "delays and joined streams need a GPU", _unscheduled(trace))
    return None


def _unscheduled(trace: Trace) -> Trace:
    """Return a trace under the default schedule."""
    return trace.model_copy(update={"schedule": Schedule()})


def _probes(trace: Trace, capabilities: Capabilities) -> Excess[Trace] | None:
    """Limit: what a trace expects is counted."""
    for probe in trace.expect:
        if probe not in capabilities.probes:
            others = {each: least for each, least in trace.expect.items() if each != probe}
            mended = trace.model_copy(update={"expect": others})
            return Excess(f"expect.{probe}", None, f"allowed probes are {listed(capabilities.probes)}", mended)
    return None


def _faults(trace: Trace, capabilities: Capabilities) -> Excess[Trace] | None:
    """Limit: faults can be switched on."""
    if not trace.faults or capabilities.faults:
        return None
    mended = trace.model_copy(update={"faults": ()})
    return Excess("faults", trace.faults[0], "the engine has no faults to switch on", mended)


def listed(names: tuple[Any, ...]) -> str:
    """Return names with commas between them."""
    return ", ".join(map(str, names)) or "none"
