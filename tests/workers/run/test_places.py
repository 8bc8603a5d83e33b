"""Places that are told beside a finding: by what is asked for, by functions of a race, by the frames of a crash."""

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import RACES, Access, Difference, MissingOrder, Site
from workers.record.verdict import CRASH
from workers.run.places import of_crash, placed, ranked
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
    return placed(found, PLACES, trace).made_at


def test_outputs_are_made_where_the_request_asks_for_it_and_then_where_all_are_each_told_once() -> None:
    assert _places("tokens", "tokens", "a") == (SAMPLES, GOES_ON)
    assert _places("tokens", "tokens", "b") == _places("tokens", "tokens", "submit 1") == (PENALIZES, SAMPLES, GOES_ON)
    assert _places("tokens", "tokens", "a", HYBRID) == (GOES_ON, SAMPLES)


def test_inputs_do_not_depend_on_parameters_but_on_sessions() -> None:
    assert _places("inputs", "positions", "submit 1", HYBRID) == (PLANS,)
    assert _places("inputs", "positions", "submit 2") == (MAKES, PLANS)


def test_a_producer_is_the_same_program() -> None:
    assert _places("transfers", "producer_ends") == (PLANS,)


def test_a_race_is_told_with_who_decides_when_its_accesses_are_made() -> None:
    first = Access(lane="compute", op="copy", step=0, site=Site(function="copies"))
    second = Access(lane="host", op="access", step=1, callers=(Site(function="writes"), Site(function="launches")))
    race = MissingOrder(first=first, second=second, memory="rows")
    found = Difference(plane=RACES, variable="", step=1, expected=0, actual=0, missing_order=race)
    assert placed(found, PLACES, TRACE).made_at == (PLANS, MAKES)


def test_places_after_a_race_are_the_race_s_alone() -> None:
    site = Site(function="copies")
    accesses = (Access(lane=lane, op="copy", step=0, site=site) for lane in ("compute", "host"))
    race = MissingOrder(first=next(accesses), second=next(accesses), memory="rows")
    found = Difference(plane="tokens", variable="tokens", step=1, expected=0, actual=0, missing_order=race)
    assert placed(found, PLACES, TRACE).made_at == (PLANS,)


def test_places_are_at_most_three_the_nearest_of_each_list_first() -> None:
    lists = ((SAMPLES, PENALIZES), (GOES_ON, SAMPLES, PLANS), (), (MAKES,))
    assert ranked(None, PLACES, *lists) == (SAMPLES, GOES_ON, MAKES)
    assert ranked(None, PLACES, *lists[:2]) == (SAMPLES, GOES_ON, PENALIZES)


def test_a_crash_is_told_by_the_innermost_frame_that_has_places() -> None:
    frames = [Site(function=name) for name in ("raises", "reads", "copies")]
    assert of_crash(frames, PLACES) == (MAKES,)
    assert of_crash(frames[:1], PLACES) == ()


def test_another_run_that_broke_off_is_told_with_what_it_broke_off_at() -> None:
    where = Site(function="reads")
    found = Difference(plane="liveness", variable="end", step=-1, expected=0, actual=1, made_at=(where,))
    assert placed(found, PLACES, TRACE).made_at == (where, MAKES)
