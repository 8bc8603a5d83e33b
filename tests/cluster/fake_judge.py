"""Fake judge: the name of a trace's first request selects the verdict or failure."""

import os
import time
from collections.abc import Callable

from scenarios.events import Schedule, Submit
from scenarios.generation.shards import Shard
from scenarios.trace import Trace
from workers.record.evidence import HOST, Access, Difference, MissingOrder, Site, fact
from workers.record.verdict import (
    Agreed,
    Crashed,
    Diverged,
    Judgement,
    NotDrained,
    Outcome,
    Stats,
    Stuck,
    Vacuous,
    Verdict,
    Waiting,
)
from workers.run.shard import ShardReport
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import TriedCandidates
from workers.targets.target import DEFAULT_CONFIG, RunConfig

FAKE_JUDGE = "tests.cluster.fake_judge:FakeJudge"
BLIND_JUDGE = "tests.cluster.fake_judge:BlindJudge"
UNSTARTABLE = "tests.cluster.fake_judge:Unstartable"


class FakeJudge:
    """Judge that returns the verdict named by the first request's name; `slow` waits `seed` ms."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Return a verdict, raise, hang for a minute or end this process, as the name says."""
        first = trace.events[0]
        assert isinstance(first, Submit)
        match first.request.partition("-")[0]:
            case "die":
                os._exit(9)
            case "hang":
                time.sleep(60)
            case "slow":
                time.sleep(trace.seed / 1000)
            case "raise":
                raise ValueError("the worker is broken\nin two lines")
        outcomes = (
            Outcome(schedule=Schedule(), kind="agreed"),
            Outcome(schedule=Schedule(policy="lazy"), kind="diverged", variable="tokens", commit="a/0/7", step=9),
        )
        verdict = _verdict(first.request)
        found = verdict.kind in ("diverged", "crashed", "stuck")
        return Judgement(
            verdict=verdict, trace=trace.explicit(), schedules=46 if sweep else 1, outcomes=outcomes if found else ()
        )


class BlindJudge(FakeJudge):
    """Judge that finds nothing in a hunt."""

    def hunt(
        self,
        shard: Shard,
        begin: Callable[[Trace], None],
        config: RunConfig = DEFAULT_CONFIG,
        *,
        to_first_finding: bool = False,
    ) -> ShardReport:
        """Return a shard report without hits."""
        count = shard.traces
        return ShardReport(
            traces=count,
            runs=3 * count,
            steps=count,
            commits=count,
            captures=count,
            reached=count,
            lengths=(1,) * count,
            digests=("00",) * count,
            probes={},
            firsts={},
            hits=(),
        )

    def attempt(
        self, candidates: list[Trace], target: Signature, config: RunConfig = DEFAULT_CONFIG
    ) -> TriedCandidates:
        """Never called."""
        raise NotImplementedError


class Unstartable:
    """Judge with a constructor that raises."""

    def __init__(self) -> None:
        raise ImportError("no such engine")

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Never called."""
        raise NotImplementedError


def _verdict(request: str) -> Verdict:
    stats = Stats(
        requests=1, steps=12, commits=11, captures=1234, run_ahead_max=1, digest="00ff", probes={"preemption": 2}
    )
    match request.partition("-")[0]:
        case "diverge":
            return Diverged(stats=stats, difference=difference(request))
        case "crash":
            return Crashed(
                stats=stats,
                error="IndexError: row 4\nof 4",
                where=Site(function="prepare_inputs", file="runner.py", line=3),
            )
        case "stuck":
            return Stuck(stats=stats, waits=NotDrained(steps=12, waiting=(Waiting(request="r0", reason="blocks"),)))
        case "vacuous":
            return Vacuous(stats=stats, missing=(fact("probe", probe="preemption", least=1, seen=0),))
        case _:
            return Agreed(stats=stats)


def difference(request: str) -> Difference:
    """Return a difference in the recurrent state of a request."""
    return Difference(
        plane="recurrent",
        variable="state",
        request=request,
        commit=f"{request}/0/7",
        step=9,
        position=3,
        expected="02c7",
        actual="8f31",
        writers=(
            Access(lane="compute", op="recurrent_update", step=9),
            Access(lane="compute", op="state_copy", step=8),
        ),
        missing_order=MissingOrder(
            first=Access(lane="d2h_counts", op="copy_counts", step=7),
            second=Access(lane=HOST, op="access", step=8, how="read"),
            memory="accepted_counts",
        ),
    )


def trace(request: str, seed: int = 0) -> Trace:
    """Return a trace with this name of the first request."""
    return Trace(seed=seed, events=(Submit(tick=0, request=request, prompt=(1, 2, 3), max_tokens=4),))
