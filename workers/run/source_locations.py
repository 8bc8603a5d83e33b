"""Add the engine's relevant source locations to a finding (no effect on the verdict).

A target declares its source locations in tables (`Places`). The key depends on the finding:
- a difference: its plane and variable, and the options that its request uses;
- a race: the functions that access the memory, and their callers;
- a crash: the innermost function of the call stack that is in the table.
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

# The planes of differences between the outputs of two runs.
_OF_OUTPUTS = ("logits", "tokens")
# The maximum number of source locations of a finding: more would hide the first ones.
LOCATIONS_MAX = 3


def ranked_locations(race: MissingOrder | None, places: Places, *lists: Sequence[Site]) -> tuple[Site, ...]:
    """Return at most three source locations: of the race, or else of each list in turn.

    With a race, only the race's source locations: the race causes the other differences.
    """
    if race is not None:
        lists = (_race_locations(race, places),)
    in_turn = (site for sites in zip_longest(*lists) for site in sites if site is not None)
    return tuple(dict.fromkeys(in_turn))[:LOCATIONS_MAX]


def with_source_locations(found: Difference, places: Places, trace: Trace) -> Difference:
    """Return a difference with the ranked source locations of its cause.

    The submits of `trace` are the accepted requests.
    """
    lists: list[Sequence[Site]]
    if found.made_at:
        # The source location where the reference run failed.
        lists = [found.made_at, crash_locations(found.made_at, places)]
    else:
        # Producer and consumer of a hand-off run the same code.
        own = places.get((found.plane, found.variable.removeprefix(f"{PRODUCER}_")), ())
        lists = [*(places.get((ASKED, name), ()) for name in _used_options(found, trace)), own]
    return found.model_copy(update={"made_at": ranked_locations(found.missing_order, places, *lists)})


def crash_locations(raised: Sequence[Site], places: Places) -> tuple[Site, ...]:
    """Return the declared source locations on a crash's call stack, innermost first."""
    named = (places[CRASH, site.function] for site in raised if (CRASH, site.function) in places)
    return next(named, ())


def _race_locations(race: MissingOrder, places: Places) -> tuple[Site, ...]:
    """Return the declared source locations in the functions of a race's two accesses.

    Callers of these functions count as well.
    """
    sites = [site for access in (race.first, race.second) for site in (access.site, *access.callers)]
    return tuple(chain.from_iterable(places.get((RACES, site.function), ()) for site in sites if site is not None))


def _used_options(found: Difference, trace: Trace) -> Iterator[str]:
    """Yield the names of options that the request with the difference uses.

    For outputs, also the options of its sampling parameters and of the trace's specification.
    Options of the request itself count for every difference: for example, any value can be wrong because the request is
    part of a session.
    """
    for submit in _requests(found.request, trace):
        yield from _changed_keys(submit)
        yield from _changed_keys(submit.params) if found.plane in _OF_OUTPUTS else ()
    yield from _changed_keys(trace.spec) if found.plane in _OF_OUTPUTS else ()


def _requests(name: str, trace: Trace) -> Iterable[Submit]:
    """Return the submits with this request name, or with the number in "submit 3"."""
    submits = trace.submits()
    return [each for number, each in enumerate(submits) if name in (each.request, f"submit {number}")]


def _changed_keys(value: Value) -> Iterator[str]:
    """Yield the names of fields with a value other than the default."""
    for name, field in type(value).model_fields.items():
        own = getattr(value, name)
        if get_origin(field.annotation) is Literal:
            yield f"{name} {own}"
        elif own != field.default:
            yield name
