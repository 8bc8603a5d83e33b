"""A judge with tiny engines behind it: the name of a trace's first request says what happens."""

import os
import time
from collections.abc import Callable

from scenarios.events import Submit
from scenarios.shards import Shard
from scenarios.trace import Trace
from workers.record.verdict import (
    Agreed,
    Crashed,
    Difference,
    Diverged,
    Judgement,
    Outcome,
    Stats,
    Stuck,
    Vacuous,
    Verdict,
)
from workers.run.shard import ShardReport
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import Tried
from workers.targets.target import DEFAULT_CONFIG, RunConfig

FAKE_JUDGE = "tests.cluster.fake_judge:FakeJudge"
BLIND_JUDGE = "tests.cluster.fake_judge:BlindJudge"
UNSTARTABLE = "tests.cluster.fake_judge:Unstartable"


class FakeJudge:
    """Judges a trace by the first word of its first request's name, after `seed` milliseconds for `slow`."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Return a verdict, raise, hang for a minute, or end this process."""
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
            Outcome(schedule="eager", agrees=True, result="agreed"),
            Outcome(schedule="lazy", agrees=False, result="diverged: tokens"),
        )
        verdict = _verdict(first.request)
        found = verdict.kind in ("diverged", "crashed", "stuck")
        return Judgement(
            verdict=verdict, trace=trace.explicit(), schedules=46 if sweep else 1, outcomes=outcomes if found else ()
        )


class BlindJudge(FakeJudge):
    """Hunts, and sees nothing."""

    def hunt(self, shard: Shard, begin: Callable[[Trace], None], config: RunConfig = DEFAULT_CONFIG) -> ShardReport:
        """Return a report without hits."""
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

    def attempt(self, candidates: list[Trace], target: Signature, config: RunConfig = DEFAULT_CONFIG) -> Tried:
        """Never called."""
        raise NotImplementedError


class Unstartable:
    """A judge that cannot be made."""

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
            return Crashed(stats=stats, error="IndexError: row 4\nof 4", where="prepare_inputs@3")
        case "stuck":
            return Stuck(stats=stats, reason="r0 waits for a block")
        case "vacuous":
            return Vacuous(stats=stats, missing=("preemption: wanted 1, seen 0",))
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
        writers=("compute:recurrent_update@9", "compute:state_copy@8"),
        missing_order="copy_counts@7 and condense@8",
    )


def trace(request: str, seed: int = 0) -> Trace:
    """Return a trace whose first request has this name."""
    return Trace(seed=seed, events=(Submit(tick=0, request=request, prompt=(1, 2, 3), max_tokens=4),))
