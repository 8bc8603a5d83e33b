"""A hunt that does not find its canary is reported as blind."""

from cluster.campaigns.hunt.canary import CANARY_EVERY, CANARY_SHARDS_MAX, CanarySearch
from cluster.dispatch.job import ShardJob
from scenarios.generation.shards import TRACES_PER_SHARD
from tests.cluster.campaigns.hunt.fakes import Memory, canary_or, clean, hit, hunt_of, report, run_through


def test_a_hunt_that_does_not_find_its_canary_is_blind() -> None:
    hunt = hunt_of(TRACES_PER_SHARD)
    tasks = run_through(hunt, clean)
    assert hunt.canary.is_blind
    assert sum(isinstance(t.job, ShardJob) and t.job.role == "canary" for t in tasks) == CANARY_SHARDS_MAX
    seeing = hunt_of(TRACES_PER_SHARD)
    run_through(seeing, canary_or(clean))
    assert not seeing.canary.is_blind
    assert (seeing.canary.rounds, seeing.canary.traces) == (1, 1)


def test_canary_search_restarts_and_a_lost_shard_finds_nothing() -> None:
    jobs = hunt_of(None).jobs
    search = CanarySearch(jobs, Memory())
    first = search.task(0)
    assert first is not None
    assert search.task(0) is None, "one shard of the search runs at a time"
    search.take(None)
    second = search.task(0)
    assert second is not None
    assert second.job.key != first.job.key
    search.take(report(jobs.job("canary", 1).shard, hit("canary", 3)))
    assert (search.rounds, search.tried, search.traces) == (1, 0, TRACES_PER_SHARD + 4)
    assert search.task(CANARY_EVERY - 1) is None
    assert search.task(CANARY_EVERY) is not None
