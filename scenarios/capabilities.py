"""Capabilities of an engine: which events, request features and specifications it can be asked for, and what it shows.

A scenario that asks for more is refused in one line; a generated trace is brought within them.
"""

from typing import Any, get_args

from scenarios.events import PLACES, AnyEvent, Event, Place, Policy, Preempt, PreemptMode, Schedule, Submit
from scenarios.features import refusals
from scenarios.grammars import ending_by_stops, misfit_at_end, without_choice
from scenarios.rescale import rescaled
from scenarios.sampling import TEMPERATURE_MAX, SamplingParams
from scenarios.spec import EngineSpec, Value
from scenarios.trace import Trace, problems

_PLAIN = SamplingParams()
# Fields of a submit that ask for something beyond a prompt and a number of tokens.
# What asks for nothing there; every draft being right has two spellings.
_NOTHING: dict[str, tuple[object, ...]] = {"accept": ("all", "1"), "stop": ((),), "priority": (0,)}
EVENTS = tuple(event.model_fields["do"].default for event in get_args(get_args(AnyEvent)[0]))
FEATURES = (*_NOTHING, *SamplingParams.model_fields)


class Capabilities(Value):
    """What one engine declares of itself.

    `events` names the kinds of events besides `submit`, `places` where in a step any may happen; `features` what a
    request may ask for: fields of a submit and of its sampling parameters. `spec` has the values allowed for each key
    of the specification, no value for a key that may be anything; a key that it lacks stays at its default, and
    `reasons` say why some keys have no others.
    `devices` are those it runs on. `lanes` are those that a schedule advances, none where schedules mean nothing.
    `probes` are those it counts, `faults` says whether historical bugs can be switched on in it. `planes` names what
    it shows beside outputs, and `logs_decisions` whether the host's decisions are among that.
    Its arithmetic may decide otherwise where two logits are closer than `logit_margin`. Where runs are costly a trace
    is run under few schedules, few of its requests are run alone, and what no schedule changes is compared under eager
    alone. `words_from_prompt` says
    whether a bad word may begin in a prompt, as it may here, or must lie in the output. It has
    `features_without_drafts` only where it does not speculate. `preempt_modes` says what may become of the results in
    flight of a request that is preempted. `pool_holds_model` says that a request as long as
    the model allows has to fit into its pool of blocks, and that no chunk may be longer; `min_tokens_within_max` that
    no request may ask for more tokens at least than at most, `needs_choice` that some token must be allowed, whatever
    else is banned, in each state of a grammar too. Where `grammars_end_by_stops`, nothing else ends one.
    `hybrid_without` are keys of the specification, each with a reason, that its hybrid models leave at nothing.
    Schedules have one of the `policies`; on `devices_without_lanes` they mean nothing.
    """

    events: tuple[str, ...] = ()
    places: tuple[Place, ...] = PLACES
    features: tuple[str, ...] = ()
    reasons: dict[str, str] = {}
    spec: dict[str, tuple[Any, ...]] = {}
    devices: tuple[str, ...] = ("sim",)
    lanes: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    faults: bool = False
    planes: tuple[str, ...] = ()
    logs_decisions: bool = False
    logit_margin: float = 0.0
    is_costly: bool = False
    words_from_prompt: bool = True
    features_without_drafts: tuple[str, ...] = ()
    preempt_modes: tuple[PreemptMode, ...] = get_args(PreemptMode)
    temperature_max: float = TEMPERATURE_MAX
    pool_holds_model: bool = False
    min_tokens_within_max: bool = False
    needs_choice: bool = False
    grammars_end_by_stops: bool = False
    hybrid_without: dict[str, str] = {}
    policies: tuple[Policy, ...] = get_args(Policy)
    devices_without_lanes: tuple[str, ...] = ()

    @property
    def finds_races(self) -> bool:
        """Whether it watches its own accesses to memory, and says which of them nothing orders."""
        return "races" in self.planes

    @property
    def scripts_drafts(self) -> bool:
        """Whether the trace says which drafts are right; else which ones there are follows from its drafters alone."""
        return "accept" in self.features


def _asks(event: Submit, feature: str) -> bool:
    """Tell whether a request asks for a feature."""
    if feature in _NOTHING:
        return getattr(event, feature) not in _NOTHING[feature]
    return bool(getattr(event.params, feature) != getattr(_PLAIN, feature))


def lacking(trace: Trace, capabilities: Capabilities) -> str | None:
    """Say what a trace asks for that an engine cannot do, the first place in it, and what is allowed there."""
    lacks = _lacks(trace.spec, capabilities)
    for index, event in enumerate(trace.events):
        if event.do not in ("submit", *capabilities.events):
            return f"events.{index}: {event.do}; events are {_listed(('submit', *capabilities.events))}"
        if event.at not in capabilities.places:
            return f"events.{index}.at: {event.at}; places are {_listed(capabilities.places)}"
        if isinstance(event, Preempt) and event.mode not in capabilities.preempt_modes:
            return f"events.{index}.mode: {event.mode}; modes are {_listed(capabilities.preempt_modes)}"
        if not isinstance(event, Submit):
            continue
        for feature in lacks:
            if _asks(event, feature):
                allowed = tuple(each for each in capabilities.features if each not in lacks)
                return f"events.{index}: a request with {feature}; features are {_listed(allowed)}"
        for key, most in _at_most(event, capabilities).items():
            if (value := getattr(event.params, key)) > most:
                return f"events.{index}.params.{key}: {value}; at most {most} is allowed"
        dead_end = _dead_end(event, capabilities)
        if dead_end is not None:
            return f"events.{index}.params.{dead_end}"
    misfit = _misfit(trace.spec, capabilities)
    if misfit is not None:
        return f"spec.{misfit}"
    if trace.schedule.policy not in capabilities.policies:
        return f"schedule.policy: {trace.schedule.policy}; policies are {_listed(capabilities.policies)}"
    if trace.schedule != Schedule() and not capabilities.lanes:
        return "schedule: it has no lanes that a schedule could advance"
    for probe in trace.expect:
        if probe not in capabilities.probes:
            return f"expect.{probe}: probes are {_listed(capabilities.probes)}"
    if trace.faults and not capabilities.faults:
        return f"faults: {trace.faults[0]}; no fault can be switched on in it"
    return None


def _lacks(spec: EngineSpec, capabilities: Capabilities) -> tuple[str, ...]:
    """Return the features that an engine of some specification does not have."""
    beside_drafts = capabilities.features_without_drafts if spec.num_speculative_tokens else ()
    return tuple(each for each in FEATURES if each not in capabilities.features or each in beside_drafts)


def _misfit(spec: EngineSpec, capabilities: Capabilities) -> str | None:
    """Say which key of a specification an engine cannot do, and what is allowed there."""
    for key, value in spec:
        allowed = allowed_values(key, capabilities)
        if allowed is not None and value not in allowed:
            reason = capabilities.reasons.get(key)
            return f"{key}: {value}; allowed are {_listed(allowed)}{f': {reason}' if reason else ''}"
    for key in _beside_hybrid(spec, capabilities):
        value = getattr(spec, key)
        return f"{key}: {value}; with layers hybrid {type(value)()} is allowed: {capabilities.hybrid_without[key]}"
    if capabilities.pool_holds_model:
        if spec.max_model_len > (most := spec.num_blocks * spec.block_size):
            return f"max_model_len: {spec.max_model_len}; num_blocks x block_size allow {most}"
        if (chunk := spec.long_prefill_token_threshold) > spec.max_model_len:
            return f"long_prefill_token_threshold: {chunk}; max_model_len allows {spec.max_model_len}"
    return None


def _beside_hybrid(spec: EngineSpec, capabilities: Capabilities) -> tuple[str, ...]:
    """Return what a hybrid model is asked for that an engine does not do with one."""
    asked = capabilities.hybrid_without if spec.layers == "hybrid" else ()
    return tuple(key for key in asked if getattr(spec, key))


def _leaves_choice(event: Submit) -> bool:
    """Tell whether some allowed token is neither a stop that comes too soon nor the end of a bad word."""
    params = event.params
    banned = {*(event.stop if params.min_tokens else ()), *(word[-1] for word in params.bad_words)}
    return not params.allowed_tokens or not banned.issuperset(params.allowed_tokens)


def _dead_end(event: Submit, capabilities: Capabilities) -> str | None:
    """Say which parameter of a request may leave it without a token, or ends a grammar as an engine does not."""
    if capabilities.needs_choice and not _leaves_choice(event):
        return "allowed_tokens: all are banned by stops or bad words; one must be left"
    misfit = misfit_at_end(event) if capabilities.grammars_end_by_stops else None
    if misfit is not None:
        return f"grammar: {misfit}; a grammar ends by stop tokens alone, all of them or none in a state"
    state = without_choice(event) if capabilities.needs_choice else None
    if state is not None:
        return f"grammar: {state} leaves only what stops, bad words or allowed_tokens ban; one must be left"
    return None


def _alive(event: Submit, vocab_size: int, capabilities: Capabilities) -> Submit:
    """Return a submit that leaves itself a token everywhere and ends its grammar as an engine does."""
    if capabilities.needs_choice and not _leaves_choice(event):
        event = event.model_copy(update={"params": event.params.model_copy(update={"allowed_tokens": ()})})
    if capabilities.grammars_end_by_stops:
        event = ending_by_stops(event, vocab_size)
    if capabilities.needs_choice and without_choice(event) is not None:
        masks = {"allowed_tokens": (), "bad_words": (), "min_tokens": 0}
        event = event.model_copy(update={"params": event.params.model_copy(update=masks)})
    return event


def within(trace: Trace, capabilities: Capabilities) -> Trace:
    """Return a trace with everything left out that an engine cannot do, rescaled to its blocks if it has no others."""
    sizes = allowed_values("block_size", capabilities)
    if sizes is not None and trace.spec.block_size not in sizes:
        trace = rescaled(trace, sizes[0])
    kept = [event for event in trace.events if _is_possible(event, capabilities)]
    events = [_plain(event, trace.spec, capabilities) if isinstance(event, Submit) else event for event in kept]
    spec = {key: _nearest(value, allowed_values(key, capabilities)) for key, value in trace.spec}
    made = EngineSpec(**spec)
    if capabilities.hybrid_without and (_beside_hybrid(made, capabilities) or refusals(made, ())):
        spec["layers"] = "attention"
    if capabilities.pool_holds_model:
        spec["max_model_len"] = min(spec["max_model_len"], spec["num_blocks"] * spec["block_size"])
        chunk = min(spec["long_prefill_token_threshold"], spec["max_model_len"])
        spec["long_prefill_token_threshold"] = chunk
    update: dict[str, object] = {
        "events": tuple(events),
        "spec": EngineSpec(**spec),
        "schedule": trace.schedule if _has_schedule(trace, capabilities) else Schedule(),
        "expect": {probe: least for probe, least in trace.expect.items() if probe in capabilities.probes},
        "faults": trace.faults if capabilities.faults else (),
    }
    found = trace.model_copy(update=update)
    # In a smaller pool, or a shorter model, not every request has room.
    wrong = {problem.path[1] for problem in problems(found) if problem.path[0] == "events"} if sizes else set()
    fitting = tuple(event for index, event in enumerate(found.events) if index not in wrong)
    return found.model_copy(update={"events": fitting}) if wrong else found


def _has_schedule(trace: Trace, capabilities: Capabilities) -> bool:
    """Tell whether an engine has lanes that a trace's schedule can advance."""
    return bool(capabilities.lanes) and trace.schedule.policy in capabilities.policies


def _is_possible(event: Event, capabilities: Capabilities) -> bool:
    """Tell whether an event can happen at all, whatever a request asks for."""
    if isinstance(event, Preempt) and event.mode not in capabilities.preempt_modes:
        return False
    return getattr(event, "do", "") in ("submit", *capabilities.events) and event.at in capabilities.places


def _at_most(event: Submit, capabilities: Capabilities) -> dict[str, float | int]:
    """Return the largest values of a request's sampling parameters."""
    least_of_all = {"min_tokens": event.max_tokens} if capabilities.min_tokens_within_max else {}
    return {"temperature": capabilities.temperature_max, **least_of_all}


def _plain(event: Submit, spec: EngineSpec, capabilities: Capabilities) -> Submit:
    """Return a submit that asks for nothing an engine cannot do."""
    asked = [feature for feature in _lacks(spec, capabilities) if _asks(event, feature)]
    params = {key: getattr(_PLAIN, key) for key in asked if key not in _NOTHING}
    for key, most in _at_most(event, capabilities).items():
        params[key] = min(params.get(key, getattr(event.params, key)), most)
    fields: dict[str, object] = {key: _NOTHING[key][0] for key in asked if key in _NOTHING}
    plain = event.model_copy(update={**fields, "params": event.params.model_copy(update=params)})
    return _alive(plain, spec.vocab_size, capabilities)


def allowed_values(key: str, capabilities: Capabilities) -> tuple[Any, ...] | None:
    """Return the values allowed for a key of the specification, the one to fall back on first; None if any is."""
    return capabilities.spec.get(key, (EngineSpec.model_fields[key].default,)) or None


def is_allowed(key: str, value: Any, capabilities: Capabilities) -> bool:
    """Tell whether a key of the specification may have a value."""
    allowed = allowed_values(key, capabilities)
    return allowed is None or value in allowed


def _nearest(value: Any, allowed: tuple[Any, ...] | None) -> Any:
    """Return a value where it is allowed, else the first that is."""
    return value if allowed is None or value in allowed else allowed[0]


def _listed(names: tuple[Any, ...]) -> str:
    return ", ".join(map(str, names)) or "none"
