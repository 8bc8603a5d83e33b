"""Runs under other schedules: compared with a correct run, and judged if they differ."""

from collections.abc import Sequence

import pytest

from scenarios.events import Schedule
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged, Verdict
from workers.run import agreed_run
from workers.run.agreed_run import Repetition
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.references import References

VALUE_CACHE = ModelValueCache()
SCHEDULES = (Schedule(), Schedule(policy="lazy"), Schedule(policy="random", seed=3))


def under(trace: Trace, schedules: Sequence[Schedule], compared: References | None) -> list[Verdict]:
    """Return the verdicts of a trace under each schedule."""
    copies = [trace.model_copy(update={"schedule": schedule}) for schedule in schedules]
    return [check(copy, VALUE_CACHE, Options(races=False, compared=compared)) for copy in copies]


def test_repeated_run_has_verdict_of_full_judgement() -> None:
    for seed in range(3):
        trace, references = random_trace(seed).explicit(), References()
        assert under(trace, SCHEDULES[:1], references) == under(trace, SCHEDULES[:1], None)
        first = references.agreed
        assert first is not None, seed
        assert under(trace, SCHEDULES[1:], references) == under(trace, SCHEDULES[1:], None)
        # The last run that was judged in full is kept.
        assert references.agreed is first, seed


@pytest.mark.parametrize("fault", ["ascend-12079-staging", "ascend-3372-output-at-once"])
def test_run_with_different_records_is_judged_in_full(fault: str) -> None:
    trace = random_trace(0).model_copy(update={"faults": (fault,)}).explicit()
    first, second = under(trace, SCHEDULES[:2], References())
    assert isinstance(first, Agreed)
    assert isinstance(second, Diverged)
    assert [first, second] == under(trace, SCHEDULES[:2], None)


def test_other_trace_is_not_compared_with_agreed_run() -> None:
    references = References()
    for seed in (0, 1):
        trace = random_trace(seed).explicit()
        under(trace, SCHEDULES[:1], references)
        assert references.agreed is not None
        assert references.agreed.is_copy_of(trace)
        assert not references.agreed.is_copy_of(random_trace(seed).explicit())
        assert not references.agreed.is_copy_of(trace.model_copy(update={"seed": 1 + trace.seed}))


def test_agreed_run_drops_records_of_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed_run, "STEPS_MAX", 5)
    references, trace = References(), random_trace(0).explicit()
    assert under(trace, SCHEDULES, references) == under(trace, SCHEDULES, None)
    assert references.agreed is not None
    assert not references.agreed.is_copy_of(trace)
    assert not references.agreed.log
    assert not references.agreed.captures


def test_run_with_fewer_records_is_no_repetition() -> None:
    references, trace = References(), random_trace(0).explicit()
    under(trace, SCHEDULES[:1], references)
    agreed = references.agreed
    assert agreed is not None
    assert agreed.left is not None
    repetition = Repetition(agreed)
    assert repetition.matches_step(agreed.log, agreed.captures[:-1])
    assert not repetition.matches_end(agreed.left, agreed.digest)
    assert repetition.matches_step([], agreed.captures[-1:])
    assert repetition.matches_end(agreed.left, agreed.digest)
    assert not repetition.matches_end(agreed.left, "another digest")
