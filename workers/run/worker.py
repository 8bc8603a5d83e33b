"""Worker: judges traces and shards, and runs candidates of the shrinker; one at a time."""

from collections.abc import Callable

from scenarios.generation.shards import Shard
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Judgement
from workers.run.check import run_and_explain
from workers.run.engine_run import Confirm
from workers.run.known_bugs import KnownBugs
from workers.run.shard import ShardReport, first_matching_candidate, judge_shard
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import TriedCandidates
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class Worker:
    """Judges one trace at a time; its cache of oracle values never changes a verdict.

    `confirm` says when the findings of `judge` are confirmed with slower kernels.
    """

    def __init__(self, confirm: Confirm = "now") -> None:
        self._value_cache = ModelValueCache()
        self._confirm = confirm
        self._known_bugs = KnownBugs(self._value_cache)

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Judge a trace under its own schedule, or under a `sweep` of schedules."""
        return run_and_explain(trace, sweep, self._value_cache, self._known_bugs.of, config, self._confirm)

    def hunt(
        self,
        shard: Shard,
        begin: Callable[[Trace], None],
        config: RunConfig = DEFAULT_CONFIG,
        *,
        to_first_finding: bool = False,
    ) -> ShardReport:
        """Judge the generated traces of a shard; see `judge_shard`."""
        return judge_shard(shard, self._value_cache, begin, config, to_first_finding=to_first_finding)

    def attempt(
        self, candidates: list[Trace], target: Signature, config: RunConfig = DEFAULT_CONFIG
    ) -> TriedCandidates:
        """Run candidates of the shrinker in order, up to the first with the target's finding."""
        return first_matching_candidate(candidates, target, self._value_cache, config)
