"""Work of two runs: only a run that did better elsewhere is reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from scenarios.events import AnyEvent, SetK, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.judge.histories import Part, opened, shown, step_of
from workers.judge.efficiency import Effort, effort_of, first_loss_to_release, first_loss_to_synchronous
from workers.judge.history import History
from workers.record.engine_records import EngineRecord
from workers.record.evidence import fact
from workers.record.verdict import Work, sums_of_work

PROMPT = [1, 2, 3, 4]
SPEC = EngineSpec(layers="attention", num_speculative_tokens=2, max_model_len=64, max_num_batched_tokens=16)


def traced(*others: AnyEvent, spec: EngineSpec = SPEC, temperature: float = 0.0) -> Trace:
    params = SamplingParams(temperature=temperature, seed=1)
    submit = Submit(tick=0, request="a", prompt=tuple(PROMPT), max_tokens=8, params=params)
    return Trace(spec=spec, events=(submit, *others))


def effort(drafts: Sequence[int], sampled: Sequence[int], *more: EngineRecord) -> Effort:
    """Return the work of a run that prefills a prompt, samples token 5, and verifies drafts."""
    prefill = Part(0, 0, PROMPT, [0, 1], begun=PROMPT)
    decode = Part(0, 4, [5, *drafts], [0, 1], num_drafts=len(drafts))
    records = [
        opened(),
        *step_of(0, prefill),
        shown("processed", 0, [0], sampled=[[5]]),
        *step_of(1, decode),
        shown("processed", 1, [0], sampled=[sampled]),
        *more,
    ]
    found = effort_of(History.of(records))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("seen", "wanted", "expected"),
    [
        (effort([6, 7], [6]), effort([6, 7], [6, 7, 8]), ("accepted", 2, 0)),
        (effort([6], [6, 7]), effort([6, 7], [6, 7, 8]), ("drafts", 2, 1)),
        (effort([], [6]), effort([6, 7], [6, 7, 8]), ("drafts", 2, 0)),
        (effort([6, 7], [6, 7, 8]), effort([6], [6, 7]), None),
        (effort([9, 7], [6]), effort([6, 7], [6, 7, 8]), None),
        (effort([6, 7], [9]), effort([6, 7], [6, 7, 8]), None),
    ],
    ids=["rejects", "verifies fewer", "verifies none", "better", "other drafts", "near tie of the target"],
)
def test_row_that_verifies_or_accepts_fewer_drafts_than_synchronously_is_reported(
    seen: Effort, wanted: Effort, expected: tuple[Any, ...] | None
) -> None:
    found = first_loss_to_synchronous(traced(), seen, wanted)
    assert (None if found is None else (found.variable, found.expected, found.actual)) == expected
    if found is not None:
        assert (found.plane, found.request, found.step, found.position) == ("efficiency", "a", 1, 5)


def test_lookup_that_finds_other_drafts_than_synchronously_is_reported() -> None:
    lookup = traced(spec=SPEC.model_copy(update={"drafter": "ngram_gpu"}))
    found = first_loss_to_synchronous(lookup, effort([9, 7], [6]), effort([6, 7], [6, 7, 8]))
    assert found is not None
    assert found.variable == "accepted"


@pytest.mark.parametrize(
    "trace",
    [
        traced(SetK(tick=1, k=1)),
        traced(temperature=1.0),
        traced(traced().submits()[0].model_copy(update={"tick": 9})),
        traced(spec=SPEC.model_copy(update={"max_model_len": 10})),
        traced(spec=SPEC.model_copy(update={"tree_width": 2})),
    ],
    ids=["set_k", "sampled", "name again", "no room in the model", "draft tree"],
)
def test_fewer_drafts_with_a_reason_are_not_reported(trace: Trace) -> None:
    assert first_loss_to_synchronous(trace, effort([], [6]), effort([6, 7], [6, 7, 8])) is None


@pytest.mark.parametrize(("num_scheduled", "is_reported"), [(14, True), (15, False)])
def test_fewer_drafts_without_token_budget_are_not_reported(num_scheduled: int, is_reported: bool) -> None:
    seen = effort([], [6])
    rows = {key: row._replace(num_scheduled=num_scheduled) for key, row in seen.verifications.items()}
    found = first_loss_to_synchronous(traced(), Effort(seen.work, rows), effort([6, 7], [6, 7, 8]))
    assert (found is not None) is is_reported


def test_work_counts_hits_preemptions_recomputed_tokens_and_drafts() -> None:
    again = Part(0, 4, [5, 6, 7], [2, 3], begun=[*PROMPT, 5, 6, 7])
    other = Part(1, 2, [3, 4], [0, 4], begun=PROMPT)
    more = [*step_of(2, again, other), shown("processed", 2, [0, 1], sampled=[[8], [9]])]
    # Positions 4 and 5 of request 0 are computed twice; the rejected draft at position 6 was not kept.
    assert effort([6, 9], [6, 7], *more).work == Work(
        steps=3, hit_tokens=2, preemptions=1, recomputed_tokens=2, drafts=2, accepted=1
    )


BETTER = Work(steps=10, hit_tokens=8, preemptions=1, recomputed_tokens=4, drafts=12, accepted=6)


@pytest.mark.parametrize(
    ("name", "count"),
    [("hit_tokens", 7), ("preemptions", 2), ("recomputed_tokens", 5), ("steps", 11), ("accepted", 5)],
)
def test_each_quantity_that_is_worse_than_on_the_release_is_reported(name: str, count: int) -> None:
    worse = BETTER.model_copy(update={name: count})
    found = first_loss_to_release(worse, BETTER)
    assert found is not None
    facts = [fact("accepted_of", accepted=each, drafts=12) if name == "accepted" else each for each in (count,)]
    assert (found.plane, found.variable, found.actual) == ("efficiency", name, facts[0])
    assert first_loss_to_release(BETTER, worse) is None
    assert first_loss_to_release(BETTER, BETTER) is None


def test_same_acceptance_of_fewer_drafts_is_not_reported() -> None:
    assert first_loss_to_release(BETTER.model_copy(update={"drafts": 6, "accepted": 3}), BETTER) is None


def test_sums_of_work_add_each_quantity_by_run() -> None:
    sums = sums_of_work([{"release": BETTER}, {}, {"release": BETTER, "overlay": BETTER}])
    assert (sums["release"].steps, sums["overlay"]) == (20, BETTER)
