"""Jobs of a hunt's shards and traces; settings; the ledger of stored results.

A job depends only on the settings and the number.
"""

from pathlib import Path
from typing import Protocol

from cluster.dispatch.job import Role, ShardJob
from cluster.storage.corpus import Corpus
from cluster.storage.hunts import CANARY, HuntPlan
from scenarios.generation.shards import TRACES_PER_SHARD, Profile, Shard
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.verdict import Judgement
from workers.run.shard import ShardReport, shard_traces
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

# Such a shard was judged before, or its fault kills no worker: its lost attempts have another cause.
LOSSES_MAX_AGAIN = 10


class HuntSettings(Value):
    """Settings of a running hunt: its plan and run configuration."""

    profile: Profile = "mixed"
    seed: int = 0
    faults: tuple[str, ...] = ()
    canary: str = CANARY
    config: RunConfig = RunConfig()
    corpus: str = ""
    focus: tuple[str, ...] = ()

    def plan(self) -> HuntPlan:
        """Return the settings that the campaign stores, with the run configuration."""
        values = {name: value for name, value in self if name in HuntPlan.model_fields}
        return HuntPlan.model_validate({**values, "run_on": self.config.run_on()})


def canary_of(config: RunConfig) -> str:
    """Return an engine's default canary, the planted fault that hunts must find.

    An empty string for an engine without planted faults.
    """
    return CANARY if target_kind(config.engine).capabilities.faults else ""


class ShardJobs:
    """Creates the jobs of a hunt's shards, by role (hunt, repeat, canary) and shard number.

    `num_traces` is the length of the hunt, None for no bound.
    """

    def __init__(self, settings: HuntSettings, running: Path, num_traces: int | None, corpus: Corpus) -> None:
        assert settings.corpus == corpus.digest, f"it is to begin from {settings.corpus}, given is {corpus.digest}"
        self.settings = settings
        self.corpus = corpus
        self._running = running
        self.num_traces = num_traces

    @property
    def num_shards(self) -> int | None:
        """Return the number of shards; None if unlimited."""
        return None if self.num_traces is None else -(-self.num_traces // TRACES_PER_SHARD)

    def job(self, role: Role, number: int, **changes: object) -> ShardJob:
        """Return the job of a shard, or of a part of it."""
        count = TRACES_PER_SHARD
        if self.num_traces is not None and role != "canary":
            count = min(count, self.num_traces - number * TRACES_PER_SHARD)
        faults = (self.settings.canary,) if role == "canary" else self.settings.faults
        profile, seed = self.settings.profile, self.settings.seed
        shard = Shard(profile=profile, seed=seed, number=number, traces=count, faults=faults)
        # A corpus may have the trace of the canary: the search must succeed with generated traces alone.
        if role != "canary":
            corpus = {"corpus": self.corpus.digest, "parents": self.corpus.parents(number)}
            changes |= {**corpus, "focus": self.settings.focus}
        return ShardJob.of(role, shard.model_copy(update=changes), self._running, self.settings.config)

    def of_trace(self, shard: int, index: int) -> ShardJob:
        """Return the job of one trace of a shard."""
        return self.job("hunt", shard, first=index, traces=1)

    def trace(self, number: int) -> Trace:
        """Return a trace of the hunt by its number."""
        (trace,) = shard_traces(self.of_trace(*divmod(number, TRACES_PER_SHARD)).shard)
        return trace


class Ledger(Protocol):
    """Shard reports and states of findings in the store, from which a hunt is resumed."""

    def shard(self, job: str) -> ShardReport | None:
        """Return the stored report of a shard, None without one."""

    def keep_shard(self, job: ShardJob, attempt: int, report: ShardReport) -> None:
        """Store the report of a shard."""

    def finding(self, bug: str) -> str | None:
        """Return the stored state of a finding in JSON, None without one."""

    def keep_finding(self, bug: str, state: str) -> None:
        """Store the state of a finding, in JSON."""

    def keep_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> str:
        """Write the artefact of a finding and return its path in the campaign."""

    def restore_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> None:
        """Write the artefact of a finding again if it is missing or damaged."""
