"""Ledger: what is kept of a hunt, so that it can go on later."""

from typing import Protocol

from cluster.dispatch.job import ShardJob
from workers.record.verdict import Judgement
from workers.run.shard import ShardReport
from workers.targets.target import RunConfig


class Ledger(Protocol):
    """Reports of shards and states of findings; what is written is there when the hunt is gone on with."""

    def shard(self, job: str) -> ShardReport | None:
        """Return the report of a shard."""

    def keep_shard(self, job: ShardJob, attempt: int, report: ShardReport) -> None:
        """Write the report of a shard down."""

    def finding(self, bug: str) -> str | None:
        """Return the state of a finding in JSON, None if there is none."""

    def keep_finding(self, bug: str, state: str) -> None:
        """Write the state of a finding down, in JSON."""

    def keep_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> str:
        """Write the artefact of a finding and return its path in the campaign."""
