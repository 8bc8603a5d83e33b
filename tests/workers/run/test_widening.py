"""Delays at races, with invented runs in place of a GPU."""

from collections.abc import Callable, Sequence

import pytest

from scenarios.events import Schedule
from scenarios.trace import Trace
from workers.record.evidence import HOST, Access, MissingOrder, Site
from workers.record.verdict import NO_STATS, Agreed, Crashed, Verdict
from workers.run import widening
from workers.run.widening import WIDENED_MICROSECONDS, DelayedRuns, delay_of, delay_source_lines
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM_V1

COPY = Site(function="copy_to_gpu", file="v1/utils.py", line=143)
CALLER = Site(function="prepare", file="v1/proposer.py", line=1068)
OURS = Site(function="attend", file="workers/targets/vllm/inside/lanes.py", line=7)
READ = Access(lane="main", op="copy_h2d", step=2, how="read", site=COPY, callers=(CALLER,))
ORDER = MissingOrder(first=READ, second=Access(lane=HOST, op="host", step=3), memory="runner.tokens")
AGREED = Agreed(stats=NO_STATS)


def crashed(error: str) -> Verdict:
    return Crashed(stats=NO_STATS, error=error, where=COPY)


def widened_by(
    monkeypatch: pytest.MonkeyPatch,
    verdict_under: Callable[[Schedule], Verdict],
    races: Sequence[MissingOrder] = (ORDER,),
) -> list[DelayedRuns]:
    def check(trace: Trace, *_: object, config: RunConfig) -> Verdict:
        assert config.device == "cuda"
        return verdict_under(trace.schedule)

    monkeypatch.setattr(widening, "check", check)
    monkeypatch.setattr(widening, "races_of", lambda trace, config: list(races))
    config = RunConfig(engine=VLLM_V1)
    return list(delay_source_lines(Trace(events=()), config, config.model_copy(update={"device": "cuda"}), 2))


def test_delay_has_location_of_first_access_and_callers() -> None:
    delay = delay_of(ORDER)
    assert delay is not None
    assert (delay.at, delay.step, delay.of) == (("v1/utils.py:143", "v1/proposer.py:1068"), 2, "stream")
    assert delay.microseconds == WIDENED_MICROSECONDS


def test_delay_of_a_race_of_several_ranks_applies_to_its_rank() -> None:
    delay = delay_of(ORDER.model_copy(update={"memory": "rank 1: runner.tokens"}))
    assert delay is not None
    assert delay.rank == 1
    assert (delay_of(ORDER) or delay).rank is None


def test_delay_ignores_stand_in_sources() -> None:
    replaced = ORDER.model_copy(update={"first": READ.model_copy(update={"site": OURS})})
    delay = delay_of(replaced)
    assert delay is not None
    assert delay.at == ("v1/proposer.py:1068",)
    nowhere = READ.model_copy(update={"site": OURS, "callers": ()})
    assert delay_of(ORDER.model_copy(update={"first": nowhere})) is None


def test_delay_ignores_engine_sources_without_gpu() -> None:
    delay = delay_of(ORDER, ("v1/utils.py",))
    assert delay is not None
    assert delay.at == ("v1/proposer.py:1068",)


def test_widened_harm_appears_only_with_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = widened_by(monkeypatch, lambda schedule: crashed("KeyError: 1") if schedule.delays else AGREED)
    assert found.does_harm
    assert [(each.way, each.runs, each.harmed) for each in found.tries] == [
        ("plain", 2, 0),
        ("joined", 1, 0),
        ("in_its_step", 2, 2),
    ]


def test_widened_finding_without_delay_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = widened_by(monkeypatch, lambda schedule: crashed("KeyError: 1"))
    assert not found.does_harm
    assert [each.harmed for each in found.tries] == [2, 1, 0, 0]


def test_widened_ignores_findings_of_all_plain_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter(("KeyError: 1", "IndexError: 1", *["IndexError: 1"] * 5))
    (found,) = widened_by(monkeypatch, lambda schedule: crashed(next(errors)))
    assert not found.does_harm


def test_widened_delays_every_step_if_one_step_shows_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(schedule: Schedule) -> Verdict:
        is_always = any(delay.step is None for delay in schedule.delays)
        return crashed("KeyError: 1") if is_always else AGREED

    (found,) = widened_by(monkeypatch, verdict)
    assert [(each.way, each.harmed) for each in found.tries][-2:] == [("in_its_step", 0), ("in_every_step", 2)]


def test_widened_groups_races_by_source_location(monkeypatch: pytest.MonkeyPatch) -> None:
    later = ORDER.model_copy(update={"first": READ.model_copy(update={"step": 5})})
    elsewhere = ORDER.model_copy(update={"first": READ.model_copy(update={"callers": ()})})
    scheduled: list[Schedule] = []

    def verdict(schedule: Schedule) -> Verdict:
        scheduled.append(schedule)
        return AGREED

    races = [ORDER, elsewhere, later]
    found = widened_by(monkeypatch, verdict, races)
    assert [(each.order, each.num_races) for each in found] == [(ORDER, 2), (elsewhere, 1)]
    # Twice in its step and twice in every step, of each place.
    assert sum(bool(schedule.delays) for schedule in scheduled) == 8
