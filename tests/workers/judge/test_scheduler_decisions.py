"""Scheduler decisions: consistent plans are accepted, each wrong one is reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.workers.judge.histories import changed, first_of, opened, reported, shown, without
from workers.judge.history import History
from workers.judge.scheduler_decisions import PLANES, SchedulerDecisions
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, fact


def plans() -> list[EngineRecord]:
    """Return a prompt of five tokens, then three steps with two drafts and late results."""
    seen = [opened(block_size=4)]
    # The rejected drafts of a processed step are subtracted.
    counts = zip((0, 5, 8, 9), (5, 3, 3, 3), (0, 2, 2, 2), ([5, 6], [5, 6], [5, 6, 7], [5, 6, 7]), strict=True)
    for step, (computed, num_tokens, num_drafts, blocks) in enumerate(counts):
        values: dict[str, Any] = {"scheduled_computed": [computed], "planned_drafts": [num_drafts], "told": [blocks]}
        begun = [] if step else [(0, [1, 2, 3, 4, 5])]
        seen.append(shown("scheduled", step, [0], begun=begun, blocks=[(0, blocks)], num_tokens=[num_tokens], **values))
        if step:
            seen.append(shown("processed", step - 1, [0], sampled=[[7] * (1 + (step == 3))]))
    return seen


def first(seen: Sequence[EngineRecord]) -> Difference | None:
    assert SchedulerDecisions().compared(History.of(seen)) == PLANES
    return first_of(SchedulerDecisions(), seen)


def test_plans_of_what_is_computed_and_held_are_accepted() -> None:
    assert first(plans()) is None


@pytest.mark.parametrize(
    ("step", "name", "value", "variable", "actual"),
    [
        (1, "scheduled_computed", [4], "scheduled_computed", 4),
        (2, "scheduled_computed", [9], "scheduled_computed", 9),
        (1, "told", [[5]], "tables", fact("block", block=None)),
        (1, "told", [[5, 7]], "tables", fact("block", block=7)),
        (1, "blocks", [(0, [5, 6]), (1, [6])], "tables", fact("block_of_another", block=6, other=1)),
    ],
)
def test_plan_with_a_wrong_count_or_block_is_reported(
    step: int, name: str, value: object, variable: str, actual: object
) -> None:
    seen = plans()
    # Another request begins in the first step.
    begun, blocks = [(0, [1, 2, 3, 4, 5]), (1, [9])], [(0, [5, 6]), (1, [8])]
    seen[1] = shown("scheduled", 0, [0, 1], begun=begun, blocks=blocks, num_tokens=[5, 1], told=[[5, 6], [8]])
    assert first(seen) is None
    found = first(changed(seen, (step, "scheduled", name, value)))
    assert reported(found, "variable", "actual", "step") == (variable, actual, step)


def test_token_sampled_from_a_prefill_chunk_is_reported_with_a_model_runner() -> None:
    seen = changed(plans(), (0, "scheduled", "begun", [(0, [1, 2, 3, 4, 5, 6])]))
    found = first_of(SchedulerDecisions(has_results=True), seen)
    assert reported(found, "variable", "step", "expected") == ("sampled", 0, fact("no_token"))
    assert first(seen) is None


def test_blocks_held_at_the_end_of_a_scheduler_are_reported() -> None:
    found = first([*plans(), shown("drained", 3, leaks={"blocks": 2})])
    assert reported(found, "plane", "variable", "actual") == ("books", "leaks", 2)


def test_plan_after_the_last_result_is_not_judged() -> None:
    seen = changed(without(plans()[:-1], "processed", step=1), (3, "scheduled", "scheduled_computed", [99]))
    assert first(seen) is None
