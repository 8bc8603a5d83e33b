"""Referee: forbidden decisions are refused by rule, decisions of the clean engine never."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice

import pytest

from scenarios.events import Abort, DummyStep, NoValidToken, Preempt, Reorder, ResetPrefixCache, SetK, Stall, Submit
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from tests.workers.judge.doctors import REFUSED, Doctor, Place
from tests.workers.judge.history_doctors import REFUSED_BY_HISTORY
from tests.workers.judge.schedulers import SCHEDULERS
from tests.workers.run.runs import judged_by
from workers.engine.functions import EngineFunctions
from workers.engine.scheduler import Scheduler
from workers.judge.checker import Checker
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference
from workers.record.log import Entry
from workers.record.observation import Observation
from workers.run.engine_run import Options, Run
from workers.run.event_feed import EventQueue
from workers.targets.specstorm import Specstorm, specstorm_target

VALUE_CACHE = ModelValueCache()
SEEDS = range(70)
PLACES_MAX = 8
ALL_REFUSED = {**REFUSED, **REFUSED_BY_HISTORY}


class Logged(Checker):
    """Checker that stores the entries of the decision log."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, VALUE_CACHE)
        self.log: list[Entry] = []

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        self.log += [entry for entry in log if not isinstance(entry, Observation)]
        return super().see_log(log)


@cache
def clean_log(seed: int) -> tuple[Trace, list[Entry]]:
    trace = random_trace(seed).explicit()
    checker = Logged(trace)
    assert (
        judged_by(Run(trace, VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions())), checker).to_end() is None
    )
    return trace, checker.log


@pytest.mark.parametrize("seed", range(50))
def test_referee_accepts_log_of_clean_engine(seed: int) -> None:
    trace, log = clean_log(seed)
    assert Checker(trace, VALUE_CACHE, points=frozenset()).see_log(log) is None


def refusals(doctor: Doctor) -> Iterator[Difference | None]:
    """Yield the referee's result for the first entry that a doctor changes, for each log."""
    for seed in SEEDS:
        trace, log = clean_log(seed)
        checker = Checker(trace, VALUE_CACHE, points=frozenset())
        for at, entry in enumerate(log):
            if checker.is_over:
                # An ambiguous token was sampled: the run is not judged after it.
                break
            changed = doctor(Place(trace, checker.oracle, log, at))
            if changed is not None:
                assert checker.see_log([*changed[:-1]]) is None, (seed, at)
                yield checker.see_log([changed[-1]])
                break
            assert checker.see_log([entry]) is None


@pytest.mark.parametrize("name", ALL_REFUSED)
def test_referee_names_rule_of_forbidden_decision(name: str) -> None:
    refusal, doctor = ALL_REFUSED[name]
    found = list(islice(refusals(doctor), PLACES_MAX))
    assert found, "some log has a place for it"
    for difference in found:
        assert difference is not None
        assert (difference.plane, difference.variable) == ("books", "log")
        assert refusal.is_of(difference.actual), difference.actual


class Deaf(Run):
    """Run with an engine that ignores one kind of event."""

    def __init__(self, trace: Trace, kind: type) -> None:
        super().__init__(trace, VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
        last_tick = self.feed.events.last_tick
        self.feed.events = EventQueue([event for event in trace.events if not isinstance(event, kind)])
        self.feed.events.last_tick = last_tick


@pytest.mark.parametrize(
    "kind", [SetK, Submit, Abort, Preempt, ResetPrefixCache, Stall, NoValidToken, Reorder, DummyStep]
)
def test_referee_ignored_event_is_reported(kind: type) -> None:
    traces = (clean_log(seed)[0] for seed in SEEDS)
    asked = [trace for trace in traces if any(isinstance(event, kind) for event in trace.events)]
    assert any(Deaf(trace, kind).to_end() is not None for trace in asked)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_referee_scheduler_with_one_bug_is_reported(scheduler: type[Scheduler]) -> None:
    for seed in SEEDS:
        run = Run(clean_log(seed)[0], VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
        specstorm_target(run.target).engine.scheduler.__class__ = scheduler
        found = run.to_end()
        if found is not None:
            assert isinstance(found, Difference)
            return
    pytest.fail(f"{scheduler.__name__}: not found in {len(SEEDS)} traces")
