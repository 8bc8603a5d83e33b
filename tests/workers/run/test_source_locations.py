"""Source locations of a finding: by request options, functions of a race, call stack."""

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import RACES, Access, Difference, MissingOrder, Site
from workers.record.verdict import CRASH
from workers.run.source_locations import crash_locations, ranked_locations, with_source_locations
from workers.targets.target import ASKED, Places

SAMPLES, PENALIZES, GOES_ON, PLANS, MAKES = (
    Site(function=name, file=f"{name}.py") for name in ("samples", "penalizes", "goes_on", "plans", "makes")
)
PLACES: Places = {
    ("tokens", "tokens"): (SAMPLES, GOES_ON),
    ("inputs", "positions"): (PLANS,),
    ("transfers", "ends"): (PLANS,),
    (ASKED, "frequency_penalty"): (PENALIZES, SAMPLES),
    (ASKED, "layers hybrid"): (GOES_ON,),
    (ASKED, "session"): (MAKES,),
    (RACES, "copies"): (PLANS,),
    (RACES, "launches"): (MAKES,),
    (CRASH, "reads"): (MAKES,),
}
TRACE = Trace(
    spec=EngineSpec(layers="attention"),
    events=(
        Submit(tick=0, request="a", prompt=(1,), max_tokens=2),
        Submit(tick=1, request="b", prompt=(1,), max_tokens=2, params=SamplingParams(frequency_penalty=1.0)),
        Submit(tick=2, request="c", prompt=(1,), max_tokens=2, session="s"),
    ),
)
HYBRID = TRACE.model_copy(update={"spec": EngineSpec(layers="hybrid")})


def _places(plane: str, variable: str, request: str = "", trace: Trace = TRACE) -> tuple[Site, ...]:
    found = Difference(plane=plane, variable=variable, request=request, step=0, expected=0, actual=1)
    return with_source_locations(found, PLACES, trace).made_at


def test_placed_output_lists_request_options_then_plane() -> None:
    assert _places("tokens", "tokens", "a") == (SAMPLES, GOES_ON)
    assert _places("tokens", "tokens", "b") == _places("tokens", "tokens", "submit 1") == (PENALIZES, SAMPLES, GOES_ON)
    assert _places("tokens", "tokens", "a", HYBRID) == (GOES_ON, SAMPLES)


def test_placed_inputs_ignore_sampling_but_not_sessions() -> None:
    assert _places("inputs", "positions", "submit 1", HYBRID) == (PLANS,)
    assert _places("inputs", "positions", "submit 2") == (MAKES, PLANS)


def test_placed_producer_uses_locations_of_engine() -> None:
    assert _places("transfers", "producer_ends") == (PLANS,)


def test_placed_race_uses_functions_of_accesses_and_callers() -> None:
    first = Access(lane="compute", op="copy", step=0, site=Site(function="copies"))
    second = Access(lane="host", op="access", step=1, callers=(Site(function="writes"), Site(function="launches")))
    race = MissingOrder(first=first, second=second, memory="rows")
    found = Difference(plane=RACES, variable="", step=1, expected=0, actual=0, missing_order=race)
    assert with_source_locations(found, PLACES, TRACE).made_at == (PLANS, MAKES)


def test_ranked_with_race_has_only_locations_of_race() -> None:
    site = Site(function="copies")
    accesses = (Access(lane=lane, op="copy", step=0, site=site) for lane in ("compute", "host"))
    race = MissingOrder(first=next(accesses), second=next(accesses), memory="rows")
    found = Difference(plane="tokens", variable="tokens", step=1, expected=0, actual=0, missing_order=race)
    assert with_source_locations(found, PLACES, TRACE).made_at == (PLANS,)


def test_ranked_returns_at_most_three_first_of_each_list() -> None:
    lists = ((SAMPLES, PENALIZES), (GOES_ON, SAMPLES, PLANS), (), (MAKES,))
    assert ranked_locations(None, PLACES, *lists) == (SAMPLES, GOES_ON, MAKES)
    assert ranked_locations(None, PLACES, *lists[:2]) == (SAMPLES, GOES_ON, PENALIZES)


def test_crash_locations_come_from_innermost_known_frame() -> None:
    frames = [Site(function=name) for name in ("raises", "reads", "copies")]
    assert crash_locations(frames, PLACES) == (MAKES,)
    assert crash_locations(frames[:1], PLACES) == ()


def test_placed_reference_crash_has_its_location() -> None:
    where = Site(function="reads")
    found = Difference(plane="liveness", variable="end", step=-1, expected=0, actual=1, made_at=(where,))
    assert with_source_locations(found, PLACES, TRACE).made_at == (where, MAKES)
