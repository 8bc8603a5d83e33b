"""The decisions of a hunt: none depends on who is faster, none is lost, and a hunt that cannot see says so."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.campaigns.hunt.hunt import AGAIN_EVERY, CANARY_SHARDS_MAX, UNJUDGED_MAX, Hunter, HuntSettings, Mismatch
from cluster.campaigns.planner import Task
from cluster.campaigns.triage import FindingState, Pursuit
from cluster.dispatch.job import Answer, AnyJob, Job, ShardJob, TrialJob, TryJob
from cluster.reports.hunt_report import hunt_document, hunt_lines
from scenarios.events import Submit
from scenarios.shards import TRACES_PER_SHARD, Shard
from scenarios.trace import Trace
from workers.record.verdict import Agreed, Crashed, Difference, Diverged, Judgement, Lost, Stats
from workers.run.shard import Hit, ShardReport, shard_traces
from workers.shrink.fingerprint import Signature, signature_of
from workers.shrink.shrinker import Tried
from workers.targets.target import RunConfig

NOTHING = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})
DEATH = Lost(reason="3 attempts were lost on 2 slots: its process died")
Answering = Callable[[AnyJob], Answer | Lost]


class Memory:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.shards: dict[str, ShardReport] = {}
        self.findings: dict[str, str] = {}
        self.artefacts: list[Judgement] = []

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
        return f"artefacts/{len(self.artefacts)}.yaml"


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
    """Answer canary shards with a hit, and the rest otherwise."""

    def answering(job: AnyJob) -> Answer | Lost:
        if isinstance(job, ShardJob) and job.role == "canary":
            return report(job.shard, hit("canary"))
        return answer(job)

    return answering


def clean(job: AnyJob) -> Answer | Lost:
    assert isinstance(job, ShardJob)
    return report(job.shard)


def run_through(hunter: Hunter, answer: Answering, random: Random | None = None, deaths: int = 0) -> list[Task]:
    """Run a hunt to its end; the order of answers is random, or first come first served. Return all tasks."""
    out: list[Task] = []
    seen: list[Task] = []
    for _ in range(10_000):
        tasks = hunter.tasks(4 - len(out), True)
        out += tasks
        seen += tasks
        if not out:
            assert hunter.is_done(True)
            return seen
        task = out.pop(random.randrange(len(out)) if random is not None else 0)
        result = answer(task.job)
        hunter.take(task.job.key, result, deaths if isinstance(result, Lost) else 0, 0)
    raise AssertionError("the hunt did not end")


def hunter_of(num_traces: int | None, ledger: Memory | None = None, slots: int = 2) -> Hunter:
    return Hunter(HuntSettings(seed=4), ledger or Memory(), Path("running"), num_traces, slots)


def buggy(job: AnyJob) -> Answer | Lost:
    """Every third shard meets bug x twice, every fifth bug y; candidates of one request still fail."""
    match job:
        case ShardJob(shard=shard):
            hits = [hit("x", 2, 2)] if shard.number % 3 == 1 else []
            return report(shard, *hits, *([hit("y", 5)] if shard.number % 5 == 2 else []))
        case TryJob(candidates=candidates, target=target):
            for count, candidate in enumerate(candidates, 1):
                if candidate.events:
                    return Tried(count=count, found=diverged(target.variable))
            return Tried(count=len(candidates))
        case Job(trace=asked):
            return Judgement(verdict=diverged("x" if len(asked.events) != 2 else "y"), trace=asked, schedules=1)
        case TrialJob():
            raise AssertionError("a hunt asks for no trials")


def told(hunter: Hunter) -> object:
    pursuits = [
        (bug, p.count, p.state.first, p.state.judgement, p.state.artefact) for bug, p in hunter.pursuits.items()
    ]
    return pursuits, hunter.tally, hunter.num_again


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_what_a_hunt_comes_to_does_not_depend_on_the_order_of_answers_or_the_number_of_slots(
    seed: int, slots: int
) -> None:
    calm, wild = hunter_of(20 * TRACES_PER_SHARD), hunter_of(20 * TRACES_PER_SHARD, slots=slots)
    run_through(calm, canary_or(buggy))
    run_through(wild, canary_or(buggy), Random(seed))
    assert told(wild) == told(calm)
    assert calm.pursuits["counts x"].count == 14
    assert calm.pursuits["counts x"].state.first == TRACES_PER_SHARD + 2


def test_a_bug_is_shrunk_and_written_once_however_often_it_is_met_and_however_often_the_hunt_is_resumed() -> None:
    ledger = Memory()
    for _ in range(3):
        hunter = hunter_of(10 * TRACES_PER_SHARD, ledger)
        run_through(hunter, canary_or(buggy))
        assert hunter.pursuits["counts x"].count == 6
    assert [len(each.trace.events) for each in ledger.artefacts] == [1]


def test_a_finding_that_comes_out_as_an_earlier_one_when_shrunk_is_told_so_and_gets_no_artefact() -> None:
    ledger = Memory()
    hunter = hunter_of(3 * TRACES_PER_SHARD, ledger)
    run_through(hunter, canary_or(buggy))
    assert [p.state.same_as for p in hunter.pursuits.values()] == [None, "counts x"]
    assert len(ledger.artefacts) == 1


def test_a_hunt_that_was_interrupted_anywhere_comes_to_the_same_when_it_goes_on() -> None:
    whole = hunter_of(6 * TRACES_PER_SHARD)
    run_through(whole, canary_or(buggy))
    for stop in range(1, 40, 3):
        ledger = Memory()
        hunter = hunter_of(6 * TRACES_PER_SHARD, ledger)
        out: list[Task] = []
        for _ in range(stop):
            out += hunter.tasks(4 - len(out), True)
            if out:
                task = out.pop(0)
                result = canary_or(buggy)(task.job)
                if isinstance(task.job, ShardJob) and isinstance(result, ShardReport):
                    ledger.keep_shard(task.job, 1, result)
                hunter.take(task.job.key, result, 0, 0)
        resumed = hunter_of(6 * TRACES_PER_SHARD, ledger)
        run_through(resumed, canary_or(buggy))
        assert told(resumed)[0][0][:4] == told(whole)[0][0][:4]  # type: ignore[index]
        assert resumed.tally == whole.tally
        assert len(ledger.artefacts) == 1


def test_a_hunt_that_does_not_find_its_canary_is_blind() -> None:
    hunter = hunter_of(TRACES_PER_SHARD)
    tasks = run_through(hunter, clean)
    assert hunter.canary.is_blind
    assert sum(isinstance(t.job, ShardJob) and t.job.role == "canary" for t in tasks) == CANARY_SHARDS_MAX
    seeing = hunter_of(TRACES_PER_SHARD)
    run_through(seeing, canary_or(clean))
    assert not seeing.canary.is_blind
    assert (seeing.canary.rounds, seeing.canary.traces) == (1, 1)


def test_a_sample_of_shards_is_judged_again_elsewhere_and_the_first_trace_that_differs_is_named() -> None:
    hunter = hunter_of((2 * AGAIN_EVERY + 1) * TRACES_PER_SHARD)

    def answer(job: AnyJob) -> Answer | Lost:
        assert isinstance(job, ShardJob)
        said = report(job.shard)
        if job.role == "again" and job.shard.number == AGAIN_EVERY:
            digests = [*said.digests[:5], "ff", *said.digests[6:]]
            return said.model_copy(update={"digests": tuple(digests)})
        return said

    tasks = run_through(hunter, canary_or(answer))
    again = [task for task in tasks if isinstance(task.job, ShardJob) and task.job.role == "again"]
    assert [task.avoid for task in again] == [0, 0, 0]
    assert hunter.num_again == 3
    assert hunter.mismatches == [Mismatch(AGAIN_EVERY * TRACES_PER_SHARD + 5, "00", "ff")]


def test_a_trace_that_kills_its_worker_is_found_among_its_shard_and_shrunk_one_candidate_a_job() -> None:
    ledger = Memory()
    hunter = hunter_of(TRACES_PER_SHARD, ledger)
    deadly = shard_traces(Shard(profile="labelled", seed=4, number=0))[7]

    def answer(job: AnyJob) -> Answer | Lost:
        match job:
            case ShardJob(shard=shard) if shard.first <= 7 < shard.first + shard.traces:
                return DEATH
            case ShardJob(shard=shard):
                return report(shard)
            case TryJob(candidates=candidates):
                assert len(candidates) == 1
                return DEATH if candidates[0].events else Tried(count=1)
            case _:
                return DEATH

    run_through(hunter, canary_or(answer), deaths=3)
    (pursuit,) = hunter.pursuits.values()
    assert pursuit.state.trace.events == deadly.events
    assert pursuit.state.first == 7
    (judgement,) = ledger.artefacts
    assert isinstance(judgement.verdict, Crashed)
    assert judgement.verdict.error == "its process died"
    assert len(judgement.trace.events) == 1
    assert hunter.tally.traces == TRACES_PER_SHARD
    assert hunter.unjudged == {}


def test_one_candidate_that_kills_its_worker_does_not_keep_the_others_of_its_job_from_being_tried() -> None:
    pursuit = Pursuit(FindingState.of(hit("x"), 0))

    def answer(job: AnyJob) -> Answer | Lost:
        if isinstance(job, TryJob) and any(len(each.events) == 2 for each in job.candidates):
            return DEATH
        return buggy(job)

    while pursuit.is_open:
        for task in pursuit.tasks(2):
            result = answer(task.job)
            pursuit.take(task.job.key, result, 2 if isinstance(result, Lost) else 0)
    judgement = pursuit.smallest()
    assert judgement is not None
    assert len(judgement.trace.events) == 1


def test_candidates_that_are_lost_after_the_last_round_was_settled_leave_the_small_trace_as_it_is() -> None:
    pursuit = Pursuit(FindingState.of(hit("x"), 0), limit=16)
    (judge,) = pursuit.tasks(2)
    pursuit.take(judge.job.key, buggy(judge.job), 0)
    first, second = pursuit.tasks(2)
    assert isinstance(first.job, TryJob)
    pursuit.take(first.job.key, buggy(first.job), 0)
    while pursuit.state.stage == "shrink":
        for task in pursuit.tasks(2):
            pursuit.take(task.job.key, buggy(task.job), 0)
    (confirm,) = pursuit.tasks(2)
    pursuit.take(second.job.key, DEATH, 2)
    assert pursuit.is_open
    pursuit.take(confirm.job.key, buggy(confirm.job), 0)
    judgement = pursuit.smallest()
    assert judgement is not None
    assert len(judgement.trace.events) == 1


def test_a_worker_that_raises_leaves_shards_unjudged_and_soon_ends_the_hunt() -> None:
    hunter = hunter_of(None)
    run_through(hunter, canary_or(lambda job: Lost(reason="the worker raised ValueError: x")))
    assert len(hunter.unjudged) >= UNJUDGED_MAX
    assert hunter.tally.traces == 0


def test_the_last_shard_holds_what_is_left_of_the_traces() -> None:
    hunter = hunter_of(2 * TRACES_PER_SHARD + 1)
    tasks = run_through(hunter, canary_or(clean))
    shards: Sequence[Shard] = [t.job.shard for t in tasks if isinstance(t.job, ShardJob) and t.job.role == "hunt"]
    assert [shard.traces for shard in shards] == [TRACES_PER_SHARD, TRACES_PER_SHARD, 1]
    assert hunter.tally.traces == 2 * TRACES_PER_SHARD + 1


def test_signatures_of_hits_name_bugs() -> None:
    assert hit("x").signature == Signature(plane="counts", variable="x")


def test_workers_that_are_killed_from_outside_are_no_finding_but_leave_their_shard_unjudged() -> None:
    ledger = Memory()
    hunter = hunter_of(TRACES_PER_SHARD, ledger)

    def answer(job: AnyJob) -> Answer | Lost:
        match job:
            case ShardJob(shard=shard) if shard.first <= 7 < shard.first + shard.traces:
                return DEATH
            case ShardJob(shard=shard):
                return report(shard)
            case TryJob(candidates=candidates):
                return Tried(count=len(candidates))
            case Job(trace=trace):
                return Judgement(verdict=Agreed(stats=NOTHING), trace=trace, schedules=1)
            case _:
                raise AssertionError("a hunt asks for no trials")

    run_through(hunter, canary_or(answer), deaths=3)
    assert hunter.findings == []
    assert ledger.artefacts == []
    assert hunter.unjudged == {0: "its workers died, and did not when it was run again"}
    again = hunter_of(TRACES_PER_SHARD, ledger)
    run_through(again, canary_or(answer), deaths=3)
    assert again.unjudged == hunter.unjudged


def test_generators_take_turns_shard_by_shard_and_each_is_told_what_its_traces_came_to() -> None:
    hunter = Hunter(HuntSettings(seed=4, canary=""), Memory(), Path("running"), 3 * TRACES_PER_SHARD)
    for task in hunter.tasks(3, True):
        assert isinstance(task.job, ShardJob)
        number = task.job.shard.number
        assert task.job.shard.generator == ("labelled", "hypothesis", "labelled")[number]
        hits = [hit("a", count=2)] if number == 1 else [hit("b"), hit("a")] if number == 2 else []
        hunter.take(task.job.key, report(task.job.shard, *hits), 0, 0)
    assert {name: share.traces for name, share in hunter.shares.items()} == {
        "labelled": 2 * TRACES_PER_SHARD,
        "hypothesis": TRACES_PER_SHARD,
    }
    by_one, by_other = hunter.shares["labelled"].bugs, hunter.shares["hypothesis"].bugs
    assert list(by_one.values()) == [1, 1]
    assert list(by_other.values()) == [2]
    assert hunter.tally.bugs == by_one + by_other
    entries = hunt_document(hunter, 1).generators
    assert entries["hypothesis"].bugs == dict(by_other)
    lines = "\n".join(hunt_lines(hunter, Path("x")))
    assert "labelled: 24 traces (67%), 1 probes hit, 2 of 2 bugs in 2 traces met" in lines
    assert "hypothesis: 12 traces (33%), 1 probes hit, 1 of 2 bugs in 2 traces met" in lines


def test_one_generator_alone_has_no_share_to_tell() -> None:
    hunter = Hunter(HuntSettings(profile="labelled", canary=""), Memory(), Path("running"), TRACES_PER_SHARD)
    (task,) = hunter.tasks(1, True)
    assert isinstance(task.job, ShardJob)
    hunter.take(task.job.key, report(task.job.shard), 0, 0)
    assert not any("labelled:" in line for line in hunt_lines(hunter, Path("x")))
