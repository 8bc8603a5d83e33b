"""Reference runs: each runs once for all runs of a trace, and none behind the last that matters."""

from dataclasses import dataclass, field

from scenarios.events import AnyEvent, DummyStep, LoadWeights, Neighbour, Pause, Resume, SetK, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SamplerBox, SamplerBoxKind
from workers.oracle.tape import Tapes
from workers.record.evidence import Reference, Site
from workers.record.verdict import Agreed, Crashed
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.references import References, alone, undisturbed
from workers.targets.target import EngineFailed, RunConfig, Watch

TRACE = Trace(spec=EngineSpec(vocab_size=6), events=(Submit(tick=0, request="a", prompt=(1, 3), max_tokens=4),))


@dataclass(frozen=True)
class CountingKind(SamplerBoxKind):
    """Keeps the traces that it runs."""

    opened: list[Trace] = field(default_factory=list)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        """Start one."""
        self.opened.append(trace)
        return SamplerBox(trace, self.breach)


def test_runs_of_a_trace_share_what_they_are_compared_with() -> None:
    kind, compared, counts = CountingKind(), References(), []
    for _ in range(2):
        verdict = check(TRACE.explicit(), Tapes(), Options(compared=compared), kind)
        assert isinstance(verdict, Agreed)
        counts.append((len(kind.opened), verdict.stats.captures))
    assert counts == [(3, 2), (4, 2)]


def test_nothing_is_run_behind_the_last_reference_that_matters() -> None:
    none, first = (
        check(TRACE.explicit(), Tapes(), Options(compared=compared), CountingKind())
        for compared in (References("none"), References(Reference.SYNCHRONOUS))
    )
    assert isinstance(none, Agreed)
    assert isinstance(first, Agreed)
    assert (none.stats.captures, first.stats.captures) == (0, 1)


@dataclass(frozen=True)
class CrashingKind(SamplerBoxKind):
    """Cannot start an engine; keeps whether races were to be watched."""

    watched: list[bool] = field(default_factory=list)

    def renew(self, config: RunConfig) -> bool:
        """Give up the engines that are kept."""
        return True

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        """Start none."""
        self.watched.append(watch.races)
        raise EngineFailed("IndexError: 7", Site(function="step", file="core.py", line=1))


def test_a_crash_is_judged_with_races_watched_whoever_met_it() -> None:
    kind = CrashingKind()
    assert isinstance(check(TRACE.explicit(), Tapes(), Options(races=False), kind), Crashed)
    assert kind.watched == [False, True]


def submit(name: str, tick: int) -> Submit:
    return Submit(tick=tick, request=name, prompt=(1,), max_tokens=2)


def calm_events(*events: AnyEvent, prefix_cache: bool = False) -> tuple[AnyEvent, ...] | None:
    spec = EngineSpec(layers="attention", prefix_cache=prefix_cache)
    calm = undisturbed(Trace(spec=spec, events=events))
    return None if calm is None else calm.events


def test_a_reference_has_nothing_of_the_control_plane() -> None:
    events = submit("a", 0), Pause(tick=1), Resume(tick=2), DummyStep(tick=3), SetK(tick=3, k=1), Neighbour(tick=4)
    assert calm_events(*events) == (events[0],)
    plain = Trace(events=(submit("a", 0),))
    assert undisturbed(plain) is plain


def test_a_reference_has_the_last_weights_from_the_start_and_the_requests_behind_them() -> None:
    first, last = LoadWeights(tick=2, version=1), LoadWeights(tick=5, version=2)
    events = submit("late", 5), submit("before", 4), first, last, submit("behind", 5), submit("later", 9)
    # Of events of one tick those that stand first come first.
    calm = calm_events(*events)
    assert calm == (last.model_copy(update={"tick": 0}), events[4], events[5])
    assert calm_events(submit("a", 0), last) is None
    trace = undisturbed(Trace(events=events))
    assert trace is not None
    assert alone(trace, "later").events == (calm[0], events[5])


def test_nobody_is_compared_who_may_be_given_blocks_that_other_weights_computed() -> None:
    kept = LoadWeights(tick=2, clear_cache=False)
    assert calm_events(submit("a", 0), kept, submit("b", 3), prefix_cache=True) is None
    assert calm_events(submit("a", 0), kept, submit("b", 3)) is not None
