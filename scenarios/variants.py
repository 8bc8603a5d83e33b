"""Variants of a trace: change its events, and mix it with another trace.

Every random number is labelled by the variant's seed and its use, so a variant is a function of two traces and a
seed. Events that the mixed specification does not allow are removed; the rest is a valid trace.
"""

from collections.abc import Iterator

from scenarios.draw import below
from scenarios.events import (
    HOOKS,
    Abort,
    AnyEvent,
    DisturbTransfer,
    NanLogits,
    NoValidToken,
    Preempt,
    Spoil,
    Stall,
    Submit,
)
from scenarios.spec import EngineSpec
from scenarios.trace import Trace, problems

_SITE = "variant"
# Maximum length of a request name, and largest number in an event.
NAME_MAX, NUMBER_MAX = 64, 1_000_000


def variant(parent: Trace, other: Trace, seed: int) -> Trace:
    """Return a mix of two traces, mostly `parent`, without faults and `expect`.

    Generated prompts and scripts in `other` are not expanded yet: `explicit` expands them for the mixed specification.
    """
    base = parent.model_copy(update={"seed": other.seed, "schedule": other.schedule, "faults": (), "expect": {}})
    base = base.model_copy(update={"spec": _mixed_spec(base, other.spec, seed)})
    events = list(_change_events(parent.events, seed))
    if below(2, seed, _SITE, "has others", 0):
        events += _others(other.events, seed)
    found = base.model_copy(update={"events": tuple(events)})
    wrong = {problem.path[1] for problem in problems(found) if problem.path[0] == "events"}
    kept = tuple(event for index, event in enumerate(events) if index not in wrong)
    found = found.model_copy(update={"events": kept})
    return found if found.submits() else parent.model_copy(update={"faults": (), "expect": {}})


def _mixed_spec(base: Trace, other: EngineSpec, seed: int) -> EngineSpec:
    """Replace some keys of the specification by those values of `other` that keep it valid."""
    spec = base.spec
    eighths = below(5, seed, _SITE, "spec", 0)
    for index, key in enumerate(EngineSpec.model_fields):
        if below(8, seed, _SITE, "spec key", index) < eighths:
            tried = spec.model_copy(update={key: getattr(other, key)})
            found = problems(base.model_copy(update={"spec": tried, "events": ()}))
            spec = spec if found else tried
    return spec


def _change_events(events: tuple[AnyEvent, ...], seed: int) -> Iterator[AnyEvent]:
    """Yield randomly changed events: some removed, repeated, moved, or one prompt token off."""
    for index, event in enumerate(events):
        match below(16, seed, _SITE, "event", index):
            case 0:
                pass
            case 1 | 2:
                yield event
                yield _at(event, event.tick + 1 + below(8, seed, _SITE, "again", index))
            case 3 | 4 | 5:
                yield _at(event, event.tick - 2 + below(5, seed, _SITE, "tick", index))
            case 6 | 7:
                yield event.model_copy(update={"at": HOOKS[below(len(HOOKS), seed, _SITE, "place", index)]})
            case 8 | 9 | 10 if isinstance(event, Submit):
                yield _resize(event, seed, index)
            case _:
                yield event


def _at(event: AnyEvent, tick: int) -> AnyEvent:
    return event.model_copy(update={"tick": min(max(0, tick), NUMBER_MAX)})


def _resize(event: Submit, seed: int, index: int) -> Submit:
    """Return a submit with a prompt or max_tokens one token longer or shorter."""
    by = -1 if below(2, seed, _SITE, "size", index) else 1
    if below(2, seed, _SITE, "part", index) or not isinstance(event.prompt, tuple):
        return event.model_copy(update={"max_tokens": min(max(1, event.max_tokens + by), NUMBER_MAX)})
    prompt = event.prompt + event.prompt[-1:] if by > 0 else event.prompt[:-1] or event.prompt
    return event.model_copy(update={"prompt": prompt})


def _others(events: tuple[AnyEvent, ...], seed: int) -> Iterator[AnyEvent]:
    """Yield half of the events of another trace, for new requests or for the same names."""
    are_strangers = below(2, seed, _SITE, "strangers", 0)
    for index, event in enumerate(events):
        if below(2, seed, _SITE, "other", index):
            match event:
                case (
                    Submit()
                    | Abort()
                    | Preempt()
                    | Stall()
                    | NoValidToken()
                    | NanLogits()
                    | Spoil()
                    | DisturbTransfer()
                ):
                    name = f"x.{event.request}"[:NAME_MAX] if are_strangers else event.request
                    yield event.model_copy(update={"request": name})
                case _:
                    yield event
