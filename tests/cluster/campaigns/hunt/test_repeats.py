"""A sample of shards is judged twice, and the first mismatch is reported."""

from cluster.campaigns.hunt.repeats import AGAIN_EVERY, MismatchEntry
from cluster.dispatch.job import Answer, AnyJob, ShardJob
from scenarios.generation.shards import TRACES_PER_SHARD
from tests.cluster.campaigns.hunt.fakes import canary_or, hunt_of, report, run_through
from workers.record.verdict import Lost


def test_shard_sample_is_judged_twice_and_first_mismatch_is_reported() -> None:
    hunt = hunt_of((2 * AGAIN_EVERY + 1) * TRACES_PER_SHARD)

    def answer(job: AnyJob) -> Answer | Lost:
        assert isinstance(job, ShardJob)
        said = report(job.shard)
        if job.role == "again" and job.shard.number == AGAIN_EVERY:
            digests = [*said.digests[:5], "ff", *said.digests[6:]]
            return said.model_copy(update={"digests": tuple(digests)})
        return said

    tasks = run_through(hunt, canary_or(answer))
    again = [task for task in tasks if isinstance(task.job, ShardJob) and task.job.role == "again"]
    assert [task.avoid for task in again] == [0, 0, 0]
    assert hunt.repeats.num_judged == 3
    assert hunt.repeats.mismatches == [MismatchEntry(trace=AGAIN_EVERY * TRACES_PER_SHARD + 5, first="00", again="ff")]
