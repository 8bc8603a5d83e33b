"""Places in an engine's program that are told beside a finding, from the tables of its target.

No verdict depends on them. They are also by what the request asks for, where this bears on what is found; of a race by
the functions that use the memory, as others decide when they do; of a crash by the innermost function of which the
target names places.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_origin

from scenarios.events import Submit
from scenarios.spec import PRODUCER, Value
from scenarios.trace import Trace
from workers.record.evidence import RACES, Difference, MissingOrder, Site
from workers.record.verdict import CRASH
from workers.targets.target import ASKED, Places

# The planes of outputs that are not as in another run.
_OF_OUTPUTS = ("logits", "tokens")


def placed(found: Difference, places: Places, trace: Trace) -> Difference:
    """Return a difference with the places that are to see to it; requests of the trace are those that were taken in."""
    if found.made_at:
        # Another run ended there.
        return found.model_copy(update={"made_at": found.made_at + of_crash(found.made_at, places)})
    # Both engines of a hand-off are one program.
    own = places.get((found.plane, found.variable.removeprefix(f"{PRODUCER}_")), ())
    of_features = (site for name in _asked(found, trace) for site in places.get((ASKED, name), ()))
    of_race = _of_race(found.missing_order, places) if found.missing_order is not None else ()
    return found.model_copy(update={"made_at": tuple(dict.fromkeys([*of_features, *own, *of_race]))})


def of_crash(raised: Sequence[Site], places: Places) -> tuple[Site, ...]:
    """Return the places of a crash by where it was raised and called from, innermost first."""
    named = (places[CRASH, site.function] for site in raised if (CRASH, site.function) in places)
    return next(named, ())


def _of_race(race: MissingOrder, places: Places) -> Iterator[Site]:
    """Yield the places that decide when two accesses are made, by their functions and those that call them."""
    for access in (race.first, race.second):
        for site in (access.site, *access.callers):
            yield from places.get((RACES, site.function), ()) if site is not None else ()


def _asked(found: Difference, trace: Trace) -> Iterator[str]:
    """Yield the keys of what the request of a difference asks for; of its output those of parameters, and the trace's.

    Whatever it is that is wrong of a request, it may be so because it is part of a session.
    """
    for submit in _requests(found.request, trace):
        yield from _set(submit)
        yield from _set(submit.params) if found.plane in _OF_OUTPUTS else ()
    yield from _set(trace.spec) if found.plane in _OF_OUTPUTS else ()


def _requests(name: str, trace: Trace) -> Iterable[Submit]:
    """Return the requests that have a name, or the number of their submit."""
    submits = trace.submits()
    return [each for number, each in enumerate(submits) if name in (each.request, f"submit {number}")]


def _set(value: Value) -> Iterator[str]:
    """Yield the keys of a value that have another value than by default; of one of several texts key and text."""
    for name, field in type(value).model_fields.items():
        own = getattr(value, name)
        if get_origin(field.annotation) is Literal:
            yield f"{name} {own}"
        elif own != field.default:
            yield name
