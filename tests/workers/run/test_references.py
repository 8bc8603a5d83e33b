"""Reference runs: each runs once for all runs of a trace, and none behind the last that matters."""

from dataclasses import dataclass, field

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.targets.sampler_box import SamplerBox, SamplerBoxKind
from workers.oracle.tape import Tapes
from workers.record.evidence import Reference, Site
from workers.record.verdict import Agreed, Crashed
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.references import References
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
    # Of one request without drafts both references are the same run.
    assert counts == [(2, 2), (3, 2)]


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
