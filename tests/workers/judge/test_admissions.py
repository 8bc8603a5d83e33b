"""Admissions: a waiting request is admitted once there is room for it, in the order of priorities."""

from typing import Any

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from tests.workers.judge.histories import opened, shown
from workers.judge.admissions import PLANS_MAX, Admissions
from workers.judge.history import History
from workers.judge.judge import End
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference
from workers.record.words import difference_text

SPEC = EngineSpec(layers="attention", num_speculative_tokens=0, max_model_len=64, policy="priority")
# Each has 8 tokens at most: with blocks of 4 tokens and a reserved one, 4 blocks (the last for the token after it).
SUBMITS = [Submit(tick=0, request=name, prompt=(1, 2), max_tokens=6, priority=at) for name, at in (("a", 0), ("b", 1))]
ROOM = {"admitted": [], "running": [(0, 1)], "rows_left": 1, "tokens_left": 5, "blocks_left": 7, "blocks_reserved": 1}


def waiting(requests: list[int], **left: Any) -> EngineRecord:
    return shown("waiting", 0, requests, **{**ROOM, **left})


def judged(*seen: EngineRecord) -> Difference | None:
    end = End(1, {}, history=History.of([opened(), *seen]), submits=SUBMITS)
    return next(Admissions(SPEC).differences(end), None)


def test_request_that_waits_beside_room_is_reported() -> None:
    plans = [waiting([1])] * (PLANS_MAX + 1)
    assert judged(*plans[1:]) is None
    found = judged(*plans)
    assert found is not None
    assert (found.plane, found.variable, found.request) == ("liveness", "waiting", "submit 1")
    assert difference_text(found) == (
        "waiting is waiting after 5 such plans, the last with 1 batch rows and 7 blocks left, "
        "expected admitted within 4 plans that leave room for it"
    )


def test_plan_without_a_row_tokens_or_blocks_does_not_count() -> None:
    for full in ({"rows_left": 0}, {"tokens_left": 4}, {"blocks_left": 6}):
        plans = [waiting([1])] * PLANS_MAX
        assert judged(*plans, waiting([1], **full), *plans) is None


def test_blocks_of_running_requests_are_kept_for_them() -> None:
    plans = [waiting([1], running=[(0, 0)])] * (PLANS_MAX + 1)
    assert judged(*plans) is None


def test_request_that_was_admitted_in_between_waits_anew() -> None:
    plans = [waiting([1])] * PLANS_MAX
    assert judged(*plans, waiting([1], admitted=[1]), *plans[1:]) is None


def test_request_of_a_worse_priority_is_not_admitted_first() -> None:
    assert judged(waiting([1], admitted=[0])) is None
    found = judged(waiting([0], admitted=[1]))
    assert found is not None
    assert (
        difference_text(found)
        == "admitted is admitted with priority 1, expected after submit 0, of priority 0, which waits"
    )
