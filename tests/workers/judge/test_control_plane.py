"""Judge of the control plane: what keeps to pauses and clearings is passed over, each breach is told by its rule."""

from typing import Any

import pytest

from workers.judge.control_plane import ControlPlane
from workers.judge.judge import End
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation

BLOCK = 4


def control(what: str, version: int = 0, tokens: Any = ()) -> Observation:
    return Observation("controlled", 0, (), {"what": what, "version": version, "tokens": list(tokens)})


def step(number: int, request: int, computed: range, table: list[int], begins: bool = False) -> list[Observation]:
    """Return the plan and the inputs of a step of one request, whose tokens are computed at some positions."""
    slots = [table[position // BLOCK] * BLOCK + position % BLOCK for position in computed]
    begun = [[request, [1] * computed.stop]] if begins else []
    inputs = {"slots": slots, "starts": [0, len(slots)], "seq_lens": [computed.stop], "tables": [table]}
    return [
        Observation("scheduled", number, (request,), {"begun": begun}),
        Observation("inputs", number, (request,), inputs),
    ]


def judged(*log: Observation | list[Observation]) -> Difference | None:
    judge = ControlPlane()
    seen = [each for part in log for each in (part if isinstance(part, list) else [part])]
    judge.see_log([Observation("opened", -1, (), {"block_size": BLOCK}), *seen])
    assert judge.planes == ("control",)
    return judge.at_end(End(9, {}))


FIRST = step(0, 0, range(5), [2, 3], begins=True)


def test_who_is_computed_again_behind_a_clearing_is_passed_over() -> None:
    again = step(1, 0, range(6), [5, 2], begins=True)
    assert judged(FIRST, control("pause_keep"), control("cleared"), control("resume"), again) is None


@pytest.mark.parametrize("request_number", [0, 1])
def test_what_was_computed_before_a_clearing_is_attended_to_by_nobody(request_number: int) -> None:
    goes_on = step(1, request_number, range(4, 6), [2, 3], begins=bool(request_number))
    assert judged(FIRST, control("weights", 1, [0]), goes_on) is None
    found = judged(FIRST, control("weights", 1, [0]), control("cleared"), goes_on)
    assert found is not None
    assert (found.variable, found.request, found.step, found.position) == ("era", f"submit {request_number}", 1, 0)
    assert (found.expected, found.actual) == (fact("of_an_era", era=1), fact("of_an_era", era=0))


def test_what_is_loaded_behind_a_clearing_is_of_no_era() -> None:
    values = {"number": 0, "phase": "begins", "of": "load", "is_synchronous": False, "blocks": [2]}
    load = Observation("transfer", 0, (0,), {**values, "slots": [0], "lost": [], "is_ahead": False})
    goes_on = step(1, 0, range(4, 6), [2, 5])
    assert judged(FIRST, control("cleared"), load, goes_on) is None
    assert judged(FIRST, load, control("cleared"), step(1, 0, range(4, 6), [3, 5])) is not None


def test_a_copy_of_a_block_is_of_the_eras_of_that_block() -> None:
    again = step(1, 0, range(6), [5, 6], begins=True)
    copied = Observation("copied", 2, (), {"blocks": [(6, 3)]})
    goes_on = step(2, 0, range(5, 7), [5, 3], begins=True)
    assert judged(FIRST, control("cleared"), again, copied, goes_on) is None
    stale = Observation("copied", 2, (), {"blocks": [(3, 6)]})
    found = judged(FIRST, control("cleared"), again, stale, step(2, 0, range(5, 7), [5, 6], begins=True))
    assert found is not None
    assert (found.variable, found.position, found.actual) == ("era", 4, fact("of_an_era", era=0))


def test_inputs_that_are_shown_behind_a_clearing_are_of_the_era_in_which_they_were_planned() -> None:
    plan, inputs = step(1, 0, range(5, 6), [2, 3])
    assert judged(FIRST, plan, control("cleared"), inputs) is None


@pytest.mark.parametrize(
    ("mode", "begins", "is_allowed"),
    [("keep", False, False), ("abort", False, False), ("wait", False, True), ("wait", True, False)],
)
def test_while_the_engine_is_paused_nothing_is_planned_but_what_comes_to_its_end(
    mode: str, begins: bool, is_allowed: bool
) -> None:
    planned = step(1, 0, range(5, 6), [2, 3], begins=begins)
    found = judged(FIRST, control(f"pause_{mode}"), planned)
    assert (found is None) == is_allowed
    if found is not None:
        assert (found.variable, found.request, found.step) == ("paused", "submit 0", 1)
    assert judged(FIRST, control(f"pause_{mode}"), control("resume"), planned) is None


def test_the_last_of_several_pauses_holds() -> None:
    planned = step(1, 0, range(5, 6), [2, 3])
    assert judged(FIRST, control("pause_keep"), control("pause_wait"), planned) is None
    assert judged(FIRST, control("pause_wait"), control("pause_keep"), planned) is not None


def test_weights_that_are_others_than_those_due_are_told() -> None:
    assert judged(control("weights", 2, [0])) is None
    found = judged(control("weights", 2, [3]))
    assert found is not None
    assert (found.variable, found.expected, found.actual) == (
        "weights",
        fact("weights", version=2),
        fact("unlike", count=3),
    )


def test_weights_of_a_drafter_that_did_not_outlive_a_sleep_are_told() -> None:
    assert judged(control("drafter_weights", 0, [0])) is None
    found = judged(control("drafter_weights", 0, [6]))
    assert found is not None
    assert (found.variable, found.expected, found.actual) == (
        "drafter_weights",
        fact("kept_asleep"),
        fact("unlike", count=6),
    )


def test_no_step_is_executed_while_a_part_of_the_engine_sleeps() -> None:
    assert judged(FIRST, control("pause_keep"), control("resume")) is None
    found = judged(FIRST, control("pause_keep"), control("resume"), control("executed_asleep"))
    assert found is not None
    assert (found.variable, found.expected, found.actual) == ("asleep", fact("awake"), fact("executed"))


def test_a_neighbour_has_the_same_output_each_time() -> None:
    assert judged(control("neighbour", 0, [7, 8]), control("neighbour", 0, [7, 8])) is None
    found = judged(control("neighbour", 0, [7, 8]), control("neighbour", 0, [7, 9]))
    assert found is not None
    assert (found.variable, found.expected, found.actual) == ("neighbour", (7, 8), (7, 9))


@pytest.mark.parametrize(("is_before", "is_told"), [(True, False), (False, True)])
def test_who_was_loading_when_the_engine_paused_begins_and_nobody_who_loads_since(
    is_before: bool, is_told: bool
) -> None:
    values = {"number": 0, "phase": "begins", "of": "load", "is_synchronous": False, "blocks": [5]}
    load = Observation("transfer", 0, (1,), {**values, "slots": [0], "lost": [], "is_ahead": False})
    pause, begins = control("pause_wait"), step(1, 1, range(4, 6), [5, 6], begins=True)
    log = (load, pause) if is_before else (pause, load)
    assert (judged(FIRST, *log, begins) is not None) == is_told
    # What it loaded is used up: who comes back without a load is barred.
    again = step(2, 1, range(4, 7), [5, 6], begins=True)
    assert judged(FIRST, load, pause, begins, again) is not None
