"""Fakes for tests of a hunt: an in-memory ledger, invented answers, and a driver loop."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from cluster.campaigns.hunt.hunt import Hunt
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.planner import Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import Answer, AnyJob, Job, ShardJob, TrialJob, TryJob
from scenarios.events import Submit
from scenarios.generation.shards import Shard
from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.verdict import Diverged, Judgement, Lost, Stats
from workers.run.shard import Hit, ShardReport
from workers.shrink.fingerprint import signature_of
from workers.shrink.shrinker import TriedCandidates
from workers.targets.target import RunConfig

NOTHING = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})
DEATH = Lost(reason="3 attempts were lost: its process died")
DEATHS = ("its process died",) * 3
Answering = Callable[[AnyJob], Answer | Lost]


class Memory:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.shards: dict[str, ShardReport] = {}
        self.findings: dict[str, str] = {}
        self.artefacts: list[Judgement] = []
        self.restored: list[Judgement] = []

    def shard(self, job: str) -> ShardReport | None:
        return self.shards.get(job)

    def keep_shard(self, job: ShardJob, attempt: int, report: ShardReport) -> None:
        self.shards.setdefault(job.key, report)

    def finding(self, bug: str) -> str | None:
        return self.findings.get(bug)

    def keep_finding(self, bug: str, state: str) -> None:
        self.findings[bug] = state

    def keep_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> str:
        self.artefacts.append(judgement)
        return f"artefacts/fake-{len(self.artefacts):08x}.yaml"

    def restore_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> None:
        self.restored.append(judgement)


def diverged(variable: str) -> Diverged:
    difference = Difference(
        plane="counts", variable=variable, request="a", commit="a/0/1", step=1, position=None, expected="1", actual="2"
    )
    return Diverged(stats=NOTHING, difference=difference)


def trace(size: int = 1) -> Trace:
    events = [Submit(tick=0, request=f"r{index}", prompt=(1,), max_tokens=1, accept="1") for index in range(size)]
    return Trace(events=tuple(events))


def hit(variable: str, index: int = 0, count: int = 1) -> Hit:
    signature = signature_of(diverged(variable), trace())
    assert signature is not None
    return Hit(signature=signature, count=count, index=index, trace=trace(3), verdict=diverged(variable))


def report(shard: Shard, *hits: Hit, digest: str = "00") -> ShardReport:
    count = shard.traces
    return ShardReport(
        traces=count,
        runs=3 * count,
        steps=30 * count,
        commits=count,
        captures=count,
        reached=count,
        lengths=(10,) * count,
        digests=(digest,) * count,
        probes={"admit": count},
        firsts={"admit": shard.first},
        hits=hits,
    )


def canary_or(answer: Answering) -> Answering:
    """Return an answer function that gives canary shards a hit, and uses `answer` for others."""

    def answering(job: AnyJob) -> Answer | Lost:
        if isinstance(job, ShardJob) and job.role == "canary":
            return report(job.shard, hit("canary"))
        return answer(job)

    return answering


def clean(job: AnyJob) -> Answer | Lost:
    assert isinstance(job, ShardJob)
    return report(job.shard)


def run_through(
    hunt: Hunt, answer: Answering, random: Random | None = None, deaths: tuple[str, ...] = (), slots: int = 2
) -> list[Task]:
    """Run a hunt to its end, with answers in random or in job order; return all of its tasks."""
    out: list[Task] = []
    seen: list[Task] = []
    for _ in range(10_000):
        tasks = hunt.tasks(slots, 4 - len(out), True)
        out += tasks
        seen += tasks
        if not out:
            assert hunt.is_done(True)
            return seen
        task = out.pop(random.randrange(len(out)) if random is not None else 0)
        result = answer(task.job)
        hunt.take(Record(task.job.key, 1, result, deaths if isinstance(result, Lost) else ()), 0)
    raise AssertionError("the hunt did not end")


def hunt_of(num_traces: int | None, ledger: Memory | None = None) -> Hunt:
    return Hunt(HuntSettings(seed=4), ledger or Memory(), Path("running"), num_traces)


def buggy(job: AnyJob) -> Answer | Lost:
    """Answer a shard: every third has bug x, every fifth bug y; a candidate with events fails."""
    match job:
        case ShardJob(shard=shard):
            hits = [hit("x", 2, 2)] if shard.number % 3 == 1 else []
            return report(shard, *hits, *([hit("y", 5)] if shard.number % 5 == 2 else []))
        case TryJob(candidates=candidates, target=target):
            for count, candidate in enumerate(candidates, 1):
                if candidate.events:
                    return TriedCandidates(count=count, found=diverged(target.variable))
            return TriedCandidates(count=len(candidates))
        case Job(trace=asked):
            return Judgement(verdict=diverged("x" if len(asked.events) != 2 else "y"), trace=asked, schedules=1)
        case TrialJob():
            raise AssertionError("a hunt asks for no trials")
