"""A hunt that does not find its canary says that it is blind."""

from cluster.campaigns.hunt.canary import CANARY_SHARDS_MAX
from cluster.dispatch.job import ShardJob
from scenarios.shards import TRACES_PER_SHARD
from tests.cluster.campaigns.hunt.fakes import canary_or, clean, hunt_of, run_through


def test_a_hunt_that_does_not_find_its_canary_is_blind() -> None:
    hunt = hunt_of(TRACES_PER_SHARD)
    tasks = run_through(hunt, clean)
    assert hunt.canary.is_blind
    assert sum(isinstance(t.job, ShardJob) and t.job.role == "canary" for t in tasks) == CANARY_SHARDS_MAX
    seeing = hunt_of(TRACES_PER_SHARD)
    run_through(seeing, canary_or(clean))
    assert not seeing.canary.is_blind
    assert (seeing.canary.rounds, seeing.canary.traces) == (1, 1)
