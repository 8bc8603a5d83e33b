"""Reductions: passes that propose simpler variants (candidates) of a failing trace.

A pass returns its candidates for one trace in slots, boldest first: None if a slot has nothing to do. Slots of the
passes over fields keep their meaning when a field is lowered, so that a cursor may stay in place.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, cycle, islice, product
from typing import Any, TypeAlias

from pydantic import ValidationError

from scenarios.events import AnyEvent, Hold, Label, Schedule, Submit
from scenarios.sampling import Grammar, SamplingParams, Tokens
from scenarios.spec import EngineSpec, Value
from scenarios.trace import Trace, problems
from workers.record.evidence import HOST, MissingOrder
from workers.record.verdict import Diverged, Verdict, detected_race

# Numbers of neighbours to remove from a list, or from a trace's events, at a time.
CHUNKS = (16, 8, 4, 2, 1)


def simpler_params(params: SamplingParams) -> Iterator[tuple[str, object]]:
    """Yield (name, simpler value) for each non-default sampling parameter of a request."""
    for name, field in SamplingParams.model_fields.items():
        value = getattr(params, name)
        if value != field.default:
            yield from ((name, simpler) for simpler in _simpler(name, value))


def _simpler(name: str, value: object) -> Iterator[object]:
    match value:
        case tuple() if name == "grammar":
            yield from _smaller_grammars(value)
        case tuple():
            yield from _shorter(value)
            for index, word in enumerate(value):
                if isinstance(word, tuple) and name == "bad_words" and len(word) > 1:
                    yield (*value[:index], word[:-1], *value[index + 1 :])
        case int():
            yield from (each for each in (1, value // 2, value - 1) if 0 < each < value)
        case float() if not value.is_integer():
            yield max(1.0, float(round(value)))


def _shorter(value: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """Yield copies of a tuple without some consecutive elements; never an empty one."""
    for size in CHUNKS:
        for start in range(0, len(value), size) if len(value) > size else ():
            yield value[:start] + value[start + size :]


def _smaller_grammars(grammar: Grammar) -> Iterator[Grammar]:
    """Yield simpler grammars: one state made final, or some edges removed."""
    for state in range(1, len(grammar)):
        if grammar[state]:
            yield _reachable((*grammar[:state], (), *grammar[state + 1 :]))
    for state, edges in enumerate(grammar):
        for fewer in _shorter(edges):
            yield _reachable((*grammar[:state], fewer, *grammar[state + 1 :]))  # type: ignore[arg-type]


def _reachable(grammar: Grammar) -> Grammar:
    """Return a grammar without states that cannot be reached from the first state."""
    order = [0]
    for state in order:
        order += dict.fromkeys(to for _, to in grammar[state] if to not in order)
    number = {state: place for place, state in enumerate(order)}

    def renamed(edge: Tokens) -> Tokens:
        token, to = edge
        return token, number[to]

    return tuple(tuple(map(renamed, grammar[state])) for state in order)


Candidates: TypeAlias = Iterator[Trace | None]
Pass: TypeAlias = Callable[[Trace, Verdict], Candidates]

# A race is tried for a wrong value with this many more output tokens, and with these accept scripts for requests in
# turn.
LONGER = (0, 1, 4)
SCRIPTS = (None, ("0", "1"), ("1", "0"), ("01", "10"), ("0",), ("1",), ("01",), ("001",))
# Replacements tried when a request's sampling parameters are removed: another accept script, more output tokens.
INSTEAD = tuple(product((None, "0", "1"), (0, 1, 4)))
# Pairs are made of at most this many fields.
PAIRED_MAX = 12
# In prompts up to this length, tokens are set to zero one by one.
ZEROED_MAX = 16
# Host points until which an op may be held, in the order in which a step passes them.
POINTS = ("schedule", "condense", "launched", "wait_output", "process")


def valid(trace: Trace) -> bool:
    """Return whether the trace can run: its events and specification fit together."""
    return not problems(trace)


def _with(trace: Trace, **changes: object) -> Trace:
    return trace.model_copy(update=changes)


def to_eager(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace under the schedule "eager": each device op runs as early as possible."""
    yield _with(trace, schedule=Schedule()) if trace.schedule != Schedule() else None


def to_harm(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield variants that may show harm: late ops, more output tokens, other draft tokens.

    They have a late device, more output tokens, or other accepted drafts.

    A missing order has no effect if the stale value happens to equal the new one.
    """
    for longer in LONGER:
        for scripts in SCRIPTS:
            turns = cycle(scripts or (None,))
            events = [_running(e, next(turns), longer) if e.do == "submit" else e for e in trace.events]
            late = _with(trace, schedule=Schedule(policy="lazy"), events=tuple(events))
            yield late if late != trace else None


def _running(event: Submit, script: str | None, longer: int, **changes: object) -> Submit:
    """Return a submit with other accepted draft tokens and `longer` more output tokens."""
    accept = event.accept if script is None else script
    return event.model_copy(update={"accept": accept, "max_tokens": event.max_tokens + longer, **changes})


def to_one_hold(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield eager schedules that delay one op only: the first access of the race."""
    plain = trace.schedule.policy == "eager" and len(trace.schedule.holds) <= 1
    order = detected_race(verdict)
    for hold in () if plain or order is None else _delayed(order):
        yield _with(trace, schedule=Schedule(holds=(hold,)))


def _delayed(order: MissingOrder) -> Iterator[Hold]:
    """Yield the delays for a race's first op: until its second op, or until a host action."""
    first, second = order.first, order.second
    if HOST in (first.lane, first.op):
        return
    op = Label(name=first.op, step=first.step)
    if HOST not in (second.lane, second.op):
        yield Hold(op=op, until=Label(name=second.op, step=second.step))
    for at in (second.step, second.step + 1):
        yield from (Hold(op=op, until=Label(name=point, step=at)) for point in POINTS)


def to_lazy(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace under the schedule "lazy": ops run only when something waits for them."""
    is_worse = trace.schedule.policy not in ("eager", "lazy")
    yield _with(trace, schedule=Schedule(policy="lazy")) if is_worse else None


def without_holds(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace without all delays ("holds") of its schedule, then without each."""
    holds = trace.schedule.holds
    for kept in [(), *(holds[:index] + holds[index + 1 :] for index in range(len(holds)))] if holds else []:
        yield _with(trace, schedule=_changed(trace.schedule, "holds", kept))


def up_to_the_failure(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace without `expect`, then without the events after the failure."""
    yield _with(trace, expect={}) if trace.expect else None
    if isinstance(verdict, Diverged):
        events = tuple(event for event in trace.events if event.tick <= verdict.difference.step)
        yield _with(trace, events=events) if len(events) < len(trace.events) else None


def without_requests(size: int) -> Pass:
    """Return a reduction that removes `size` requests with all their events."""

    def candidates(trace: Trace, verdict: Verdict) -> Candidates:
        names = [event.request for event in trace.events if event.do == "submit"]
        for start in range(0, len(names), size) if size == 1 or len(names) > size else ():
            gone = set(names[start : start + size])
            yield _with(trace, events=tuple(e for e in trace.events if getattr(e, "request", None) not in gone))

    return candidates


def without_events(size: int) -> Pass:
    """Return a reduction that removes `size` consecutive events; a request keeps one submit."""

    def candidates(trace: Trace, verdict: Verdict) -> Candidates:
        submits = Counter(event.request for event in trace.events if event.do == "submit")
        others = [i for i, event in enumerate(trace.events) if event.do != "submit" or submits[event.request] > 1]
        for start in range(0, len(others), size) if len(others) >= size else ():
            gone = set(others[start : start + size])
            yield _with(trace, events=tuple(e for index, e in enumerate(trace.events) if index not in gone))

    return candidates


def to_default_spec(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with all engine options at their defaults."""
    yield _with(trace, spec=EngineSpec()) if trace.spec != EngineSpec() else None


def to_default_keys(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with one engine option reset to its default."""
    for key, field in EngineSpec.model_fields.items():
        changed = getattr(trace.spec, key) != field.default
        # Only one sampling method has rates.
        spec = _changed(trace.spec, "synthetic_rates", ()) if key == "sampling" else trace.spec
        yield _with(trace, spec=_changed(spec, key, field.default)) if changed else None


def to_fewer_faults(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with seed 0, then without planted faults, then with one fault less."""
    yield _with(trace, seed=0) if trace.seed else None
    yield _with(trace, faults=()) if trace.faults else None
    for fault in trace.faults if len(trace.faults) > 1 else ():
        yield _with(trace, faults=tuple(other for other in trace.faults if other != fault))


def earlier(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with one gap between events (ticks without an event) removed."""
    ticks = sorted({event.tick for event in trace.events})
    for before, after in zip([-1, *ticks], ticks, strict=False):
        pause = after if before < 0 else after - before - 1
        events = [_changed(e, "tick", e.tick - pause) if e.tick >= after else e for e in trace.events]
        yield _with(trace, events=tuple(events)) if pause > 0 else None


def lower_fields(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with one event field at its default, or at a lower or shorter value."""
    for index, event in enumerate(trace.events):
        for key in type(event).model_fields:
            if key not in ("do", "request"):
                for value in _lower(event, key):
                    yield _replaced(trace, index, key, value)


def zero_prompts(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with prompt tokens set to zero: all prompt tokens, then fewer.

    First all prompts, then each prompt, then halves of each, then single tokens of short prompts.
    """
    prompts = {i: e.prompt for i, e in enumerate(trace.events) if e.do == "submit" and isinstance(e.prompt, tuple)}
    yield _with_prompts(trace, {index: (0,) * len(prompt) for index, prompt in prompts.items()})
    for index, prompt in prompts.items():
        half, length = len(prompt) // 2, len(prompt)
        places = [range(length), range(half), range(half, length)] if any(prompt) else []
        places += [range(at, at + 1) for at in range(length) if prompt[at]] if length <= ZEROED_MAX else []
        for zeroed in places:
            yield _with_prompts(trace, {index: tuple(0 if i in zeroed else t for i, t in enumerate(prompt))})


def _with_prompts(trace: Trace, prompts: dict[int, tuple[int, ...]]) -> Trace | None:
    events = list(trace.events)
    for index, prompt in prompts.items():
        events[index] = _changed(events[index], "prompt", prompt)
    return _with(trace, events=tuple(events)) if tuple(events) != trace.events else None


def without_params(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with default sampling parameters: of all requests, then of each.

    Each is tried with the replacements of `INSTEAD`.
    """
    having = [i for i, e in enumerate(trace.events) if e.do == "submit" and e.params != SamplingParams()]
    for chosen in [having, *([index] for index in having if len(having) > 1)] if having else ():
        for script, longer in INSTEAD:
            events = [
                _running(e, script, longer, params=SamplingParams()) if isinstance(e, Submit) and i in chosen else e
                for i, e in enumerate(trace.events)
            ]
            yield _with(trace, events=tuple(events))


def inside_params(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with one sampling parameter of one request simplified."""
    for index, event in enumerate(trace.events):
        params = event.params if isinstance(event, Submit) else SamplingParams()
        for name, value in simpler_params(params):
            yield _replaced(trace, index, "params", _changed(params, name, value))


def two_fields(trace: Trace, verdict: Verdict) -> Candidates:
    """Yield the trace with two fields simplified at once.

    For fields that cannot be simplified alone.
    """
    for first, second in combinations(islice(_simplest(trace), PAIRED_MAX), 2):
        try:
            both: Trace | None = second(first(trace))
        except ValidationError:
            both = None
        yield both


def _simplest(trace: Trace) -> Iterator[Callable[[Trace], Trace]]:
    """Yield functions of a trace; each sets one field to its simplest value."""
    for index, event in enumerate(trace.events):
        for key in type(event).model_fields:
            value = None if key in ("do", "request") else _plainest(event, key)
            if value is not None and value != getattr(event, key):
                yield partial(_at_once, index=index, key=key, value=value)
    for key, field in EngineSpec.model_fields.items():
        if getattr(trace.spec, key) != field.default:
            yield partial(_spec_at_once, key=key, value=field.default)


def _plainest(event: AnyEvent, key: str) -> object:
    """Return the simplest value of a field; a list that may not be empty keeps one element."""
    value = getattr(event, key)
    if isinstance(value, tuple) and type(event).model_fields[key].is_required():
        return value[:1]
    return next((lower for lower in _lower(event, key) if lower is not None), None)


def _at_once(trace: Trace, index: int, key: str, value: object) -> Trace:
    events = list(trace.events)
    events[index] = _changed(events[index], key, value)
    return _with(trace, events=tuple(events))


def _spec_at_once(trace: Trace, key: str, value: object) -> Trace:
    return _with(trace, spec=_changed(trace.spec, key, value))


def _replaced(trace: Trace, index: int, key: str, value: object) -> Trace | None:
    """Return the trace with one event field changed; None if the value is not allowed.

    None if the field does not allow it.
    """
    event = trace.events[index]
    if value is None or value == getattr(event, key):
        return None
    try:
        changed = _changed(event, key, value)
    except ValidationError:
        return None
    return _with(trace, events=(*trace.events[:index], changed, *trace.events[index + 1 :]))


def _lower(event: AnyEvent, key: str) -> tuple[object, ...]:
    """Return simpler values for an event field, the simplest first.

    The same number for every field of a kind.
    """
    value, field = getattr(event, key), type(event).model_fields[key]
    default = None if field.is_required() else field.default
    match value:
        case bool():
            return (default,)
        case int():
            lowest = default if isinstance(default, int) else 0
            one = 1 if lowest < 1 < value else None
            return (lowest, one, (lowest + value) // 2, value - 1 if value > lowest else None)
        case str() if set(value) <= {"0", "1"}:
            return ("1", "0" if len(value) > 1 else None, value[: len(value) // 2], value[:-1])
        case SamplingParams():
            fields = SamplingParams.model_fields.items()
            return (default, *(_changed(value, name, field.default) for name, field in fields))
        case tuple():
            return (default, value[: len(value) // 2], value[:-1], value[len(value) // 2 :], value[1:])
        case _:
            return (default,)


def _changed(value: Any, key: str, to: object) -> Any:
    """Return a copy of a value with one field changed, validated."""
    assert isinstance(value, Value)
    return type(value).model_validate({name: getattr(value, name) for name in type(value).model_fields} | {key: to})


PASSES: tuple[Pass, ...] = (
    to_eager,
    up_to_the_failure,
    *map(without_requests, (4, 2, 1)),
    *map(without_events, CHUNKS),
    to_default_spec,
    to_one_hold,
    to_lazy,
    without_holds,
    to_default_keys,
    to_fewer_faults,
    earlier,
    without_params,
    zero_prompts,
    lower_fields,
    inside_params,
    two_fields,
)
