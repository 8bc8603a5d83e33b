"""Identities of plans: a scheduler's plans that keep them are passed over, each that breaks one is reported by it."""

from copy import deepcopy
from typing import Any

import pytest

from tests.workers.judge.test_step_identities import BLOCK, VOCABULARY, planned
from workers.judge.judge import End
from workers.judge.plan_identities import PLANES, PlanIdentities
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation

OPENED = {"vocab_size": VOCABULARY, "block_size": BLOCK, "state_sizes": []}


def plans() -> list[Observation]:
    """A prompt of five tokens, then three steps with two drafts, each planned before the one before it is back."""
    held = [[5, 6], [5, 6], [5, 6, 7], [5, 6, 7]]
    computed, counts, drafts = [0, 5, 8, 11], [5, 3, 3, 3], [0, 2, 2, 2]
    seen = [Observation("opened", -1, (), OPENED)]
    results = [[7], [7], [7, 7]]
    for step, blocks in enumerate(held):
        begun = [[0, [1, 2, 3, 4, 5]]] if not step else []
        # The rejected drafts of a step that is back are taken away.
        values = planned([0], [computed[step] - 2 * (step == 3)], [drafts[step]], begun, [[0, blocks]])
        values |= {"num_tokens": [counts[step]], "told": [blocks]}
        seen.append(Observation("scheduled", step, (0,), values))
        if step:
            seen.append(Observation("processed", step - 1, (0,), {"sampled": [results[step - 1]]}))
    return seen


def first(seen: list[Observation]) -> Difference | None:
    judge = PlanIdentities()
    judge.see_log(seen)
    assert judge.planes == PLANES
    return judge.at_end(End(4, {}))


def test_plans_that_keep_to_what_is_computed_and_held_are_passed_over() -> None:
    assert first(plans()) is None


@pytest.mark.parametrize(
    ("step", "name", "value", "variable", "actual"),
    [
        (1, "scheduled_computed", [4], "scheduled_computed", 4),
        (2, "scheduled_computed", [9], "scheduled_computed", 9),
        (1, "told", [[5]], "tables", fact("block", block=None)),
        (1, "told", [[5, 7]], "tables", fact("block", block=7)),
        (1, "blocks", [[0, [5, 6]], [1, [6]]], "tables", fact("block_of_another", block=6, other=1)),
    ],
)
def test_a_plan_that_breaks_an_identity_is_reported(
    step: int, name: str, value: Any, variable: str, actual: object
) -> None:
    seen = deepcopy(plans())
    plan = next(each for each in seen if (each.point, each.step) == ("scheduled", step))
    assert isinstance(plan.values, dict)
    plan.values[name] = value
    if name == "blocks":
        begun = planned([1], [0], [0], [[1, [9]]], [[1, [8]]]) | {"num_tokens": [1], "told": [[8]]}
        other = seen[1].values
        assert isinstance(other, dict)
        both = {each: [*other[each], *begun[each]] for each in other if each != "requests"}
        seen[1] = seen[1]._replace(requests=(0, 1), values=both)
    found = first(seen)
    assert found is not None
    assert (found.variable, found.actual, found.step) == (variable, actual, step)


def test_what_is_left_at_the_end_is_reported() -> None:
    found = first([*plans(), Observation("drained", 3, (), {"leaks": {"blocks": 2}})])
    assert found is not None
    assert (found.plane, found.variable, found.actual) == ("books", "leaks", 2)


def test_a_plan_behind_results_that_never_came_is_not_judged() -> None:
    seen = plans()[:-1]
    last = seen[-1]
    assert last.point == "scheduled"
    assert isinstance(last.values, dict)
    last.values["scheduled_computed"] = [99]
    assert first([each for each in seen if (each.point, each.step) != ("processed", 1)]) is None
