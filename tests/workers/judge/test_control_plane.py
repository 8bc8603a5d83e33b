"""Control plane: correct runs with pauses and resets are accepted, each breach is reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.workers.judge.histories import Part, first_of, opened, reported, shown, step_of
from workers.judge.control_plane import ControlPlane
from workers.judge.history import History
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, fact


def control(what: str, version: int = 0, tokens: Sequence[int] = ()) -> EngineRecord:
    return shown("controlled", what=what, version=version, tokens=tokens)


def step(number: int, request: int, computed: range, table: list[int], begins: bool = False) -> list[EngineRecord]:
    """Return a step of one request that computes some positions."""
    tokens = [1] * computed.stop
    return step_of(
        number, Part(request, computed.start, tokens[computed.start :], table, begun=tokens * begins or None)
    )


def judged(*log: EngineRecord | list[EngineRecord]) -> Difference | None:
    seen = [opened(), *(each for part in log for each in (part if isinstance(part, list) else [part]))]
    assert ControlPlane().compared(History.of(seen)) == ("control",)
    return first_of(ControlPlane(), seen)


FIRST = step(0, 0, range(5), [2, 3], begins=True)
CLEARED = control("cleared")


def load(request: int, block: int) -> EngineRecord:
    return shown("transfer", 0, [request], phase="begins", blocks=[block])


def test_request_recomputed_after_reset_is_accepted() -> None:
    again = step(1, 0, range(6), [5, 2], begins=True)
    assert judged(FIRST, control("pause_keep"), CLEARED, control("resume"), again) is None


@pytest.mark.parametrize("request_number", [0, 1])
def test_attended_entry_from_before_reset_is_reported(request_number: int) -> None:
    later = step(1, request_number, range(4, 6), [2, 3], begins=True)
    weights = control("weights", 1, [0])
    assert judged(FIRST, weights, later) is None
    found = judged(FIRST, weights, CLEARED, later)
    where = "variable", "request", "step", "position"
    assert reported(found, *where) == ("era", f"submit {request_number}", 1, 0)
    assert reported(found, "expected", "actual") == (fact("of_an_era", era=1), fact("of_an_era", era=0))


def test_block_loaded_after_reset_may_be_attended_to() -> None:
    assert judged(FIRST, CLEARED, load(0, 2), step(1, 0, range(4, 6), [2, 5])) is None
    assert judged(FIRST, load(0, 2), CLEARED, step(1, 0, range(4, 6), [3, 5])) is not None


def test_copied_block_belongs_to_the_era_of_its_source() -> None:
    again = step(1, 0, range(6), [5, 6], begins=True)

    def after_copy(source: int, target: int) -> Difference | None:
        later = step(2, 0, range(5, 7), [5, target], begins=True)
        return judged(FIRST, CLEARED, again, shown("copied", 2, blocks=[(source, target)]), later)

    assert after_copy(6, 3) is None
    assert reported(after_copy(3, 6), "variable", "position", "actual") == ("era", 4, fact("of_an_era", era=0))


def test_inputs_reported_after_reset_belong_to_their_plan() -> None:
    plan, inputs = step(1, 0, range(5, 6), [2, 3])
    assert judged(FIRST, plan, CLEARED, inputs) is None


@pytest.mark.parametrize(
    ("modes", "begins", "is_allowed"),
    [
        (["keep"], False, False),
        (["abort"], False, False),
        (["wait"], False, True),
        (["wait"], True, False),
        # The last pause counts.
        (["keep", "wait"], False, True),
        (["wait", "keep"], False, False),
    ],
)
def test_paused_engine_plans_only_requests_that_may_finish(modes: list[str], begins: bool, is_allowed: bool) -> None:
    planned, pauses = step(1, 0, range(5, 6), [2, 3], begins), [control(f"pause_{mode}") for mode in modes]
    expected = None if is_allowed else ("paused", "submit 0", 1)
    assert reported(judged(FIRST, pauses, planned), "variable", "request", "step") == expected
    assert judged(FIRST, pauses, control("resume"), planned) is None


@pytest.mark.parametrize(
    ("call", "variable", "expected", "actual"),
    [
        (control("weights", 2, [3]), "weights", fact("weights", version=2), fact("unlike", count=3)),
        (control("drafter_weights", 0, [6]), "drafter_weights", fact("kept_asleep"), fact("unlike", count=6)),
        (control("executed_asleep"), "asleep", fact("awake"), fact("executed")),
    ],
)
def test_wrong_weights_or_a_step_asleep_are_reported(
    call: EngineRecord, variable: str, expected: Any, actual: Any
) -> None:
    found = judged(FIRST, control("pause_keep"), control("resume"), call)
    assert reported(found, "variable", "expected", "actual") == (variable, expected, actual)


def test_right_weights_and_a_pause_alone_are_accepted() -> None:
    assert judged(control("weights", 2, [0]), control("drafter_weights", 0, [0])) is None
    assert judged(FIRST, control("pause_keep"), control("resume")) is None


def test_neighbour_with_different_output_is_reported() -> None:
    assert judged(control("neighbour", 0, [7, 8]), control("neighbour", 0, [7, 8])) is None
    found = judged(control("neighbour", 0, [7, 8]), control("neighbour", 0, [7, 9]))
    assert reported(found, "variable", "expected", "actual") == ("neighbour", (7, 8), (7, 9))


def test_paused_engine_begins_only_requests_that_were_loading_before() -> None:
    pause, begins = control("pause_wait"), step(1, 1, range(4, 6), [5, 6], begins=True)
    assert judged(FIRST, load(1, 5), pause, begins) is None
    assert judged(FIRST, pause, load(1, 5), begins) is not None
    # A load allows one begin only: without a new load the request may not begin again.
    assert judged(FIRST, load(1, 5), pause, begins, step(2, 1, range(4, 7), [5, 6], begins=True)) is not None
