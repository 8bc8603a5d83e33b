"""Places in an engine's program that are told beside a finding, from the tables of its target.

No verdict depends on them. They are also by what the request asks for, where this bears on what is found; of a race by
the functions that use the memory, as others decide when they do; of a crash by the innermost function of which the
target names places.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Literal, get_origin

from scenarios.events import Submit
from scenarios.spec import PRODUCER, Value
from scenarios.trace import Trace
from workers.record.evidence import RACES, Difference, MissingOrder, Site
from workers.record.verdict import CRASH
from workers.targets.target import ASKED, Places

# The planes of outputs that are not as in another run.
_OF_OUTPUTS = ("logits", "tokens")
# More would hide the first.
PLACES_MAX = 3


def ranked(race: MissingOrder | None, places: Places, *lists: Sequence[Site]) -> tuple[Site, ...]:
    """Return at most three places: the first of each list, then the second of each; each has the nearest first.

    After a race they are the race's alone: it is the cause of what else is wrong.
    """
    if race is not None:
        lists = (_of_race(race, places),)
    in_turn = (site for sites in zip_longest(*lists) for site in sites if site is not None)
    return tuple(dict.fromkeys(in_turn))[:PLACES_MAX]


def placed(found: Difference, places: Places, trace: Trace) -> Difference:
    """Return a difference with the ranked places of its cause; the trace has the requests that were taken in."""
    lists: list[Sequence[Site]]
    if found.made_at:
        # Another run ended there.
        lists = [found.made_at, of_crash(found.made_at, places)]
    else:
        # Both engines of a hand-off are one program.
        own = places.get((found.plane, found.variable.removeprefix(f"{PRODUCER}_")), ())
        lists = [*(places.get((ASKED, name), ()) for name in _asked(found, trace)), own]
    return found.model_copy(update={"made_at": ranked(found.missing_order, places, *lists)})


def of_crash(raised: Sequence[Site], places: Places) -> tuple[Site, ...]:
    """Return the places of a crash by where it was raised and called from, innermost first."""
    named = (places[CRASH, site.function] for site in raised if (CRASH, site.function) in places)
    return next(named, ())


def _of_race(race: MissingOrder, places: Places) -> tuple[Site, ...]:
    """Return the places that decide when two accesses are made, by their functions and those that call them."""
    sites = [site for access in (race.first, race.second) for site in (access.site, *access.callers)]
    return tuple(chain.from_iterable(places.get((RACES, site.function), ()) for site in sites if site is not None))


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
