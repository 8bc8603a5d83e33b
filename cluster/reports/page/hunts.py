"""Hunt of a campaign as values for the report page: sums, canary, shards not judged."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cluster.campaigns.hunt.canary import CANARY_SHARDS_MAX
from cluster.campaigns.hunt.shard_reports import Tally
from cluster.reports.page.judged import Amount
from cluster.storage.campaign import Campaign as Stored
from cluster.storage.hunts import HuntPlan
from scenarios.generation.shards import TRACES_PER_SHARD
from workers.run.shard import ShardReport
from workers.targets.target import RunConfig


@dataclass(slots=True)
class HuntSummary:
    """Summary of a hunt: sums over its shards, canary search, repeated shards.

    There are several `plans` after a merge of hunts. `unjudged` are the numbers of lost shards, and of shards with a
    finding that could not be reproduced.
    """

    plans: tuple[HuntPlan, ...]
    tally: Tally = field(default_factory=Tally)
    canary_shards: int = 0
    canary_found: int = 0
    canary_missed: int = 0
    judged_twice: int = 0
    mismatches: int = 0
    num_shards: int = 0
    unjudged: set[int] = field(default_factory=set)

    @property
    def settings(self) -> HuntPlan:
        """Return the settings of the campaign's first hunt."""
        return self.plans[0]

    @property
    def config(self) -> RunConfig:
        """Return the run configuration, but with the engine's default installation."""
        return RunConfig.of(self.settings.run_on)

    @property
    def is_blind(self) -> bool:
        """Whether the hunt searched its canary (planted fault) in vain."""
        return self.canary_missed >= CANARY_SHARDS_MAX

    @property
    def shards(self) -> Amount:
        """Return in words how many shards were judged and, if any was lost, started."""
        lost = len(self.unjudged)
        return Amount("shard", self.num_shards, self.num_shards + lost if lost else None)

    def gaps(self) -> Iterator[str]:
        """Yield why the hunt was not judged completely."""
        canary = self.settings.canary
        if not self.tally.traces:
            yield "no trace of the hunt was judged"
        if self.is_blind:
            yield f"blind: the canary {canary} was not found"
        elif canary and not self.canary_found:
            yield f"the canary {canary} was not searched for to the end"
        if self.mismatches:
            yield f"{self.mismatches} shards differed when judged twice"
        if self.unjudged:
            yield f"{len(self.unjudged)} {'shard was' if len(self.unjudged) == 1 else 'shards were'} not judged"


def read_hunt(plans: tuple[HuntPlan, ...], stored: Stored) -> tuple[HuntSummary, list[ShardReport]]:
    """Return the summary of a hunt, and its shard reports.

    A shard that was judged in parts has a report for each part, and one for the whole shard, which alone is counted.
    """
    hunt = HuntSummary(plans)
    hunts: dict[int, list[str]] = {}
    again: list[tuple[int, str]] = []
    lost: dict[str, set[int]] = {}
    for _, role, number, _, text in stored.select("shards", order=("role", "number")):
        match role:
            case "canary":
                report = ShardReport.model_validate_json(str(text))
                hunt.canary_shards += 1
                hunt.canary_found += bool(report.hits)
                hunt.canary_missed = 0 if report.hits else hunt.canary_missed + 1
            case "again":
                again.append((int(number or 0), str(text)))
            case "hunt":
                hunts.setdefault(int(number or 0), []).append(str(text))
            case _:
                lost.setdefault(str(role), set()).add(int(number or 0))
    planned = {run.planned.traces for run in stored.runs()} - {None}
    wholes: dict[int, list[ShardReport]] = {}
    for number, texts in hunts.items():
        last = {traces % TRACES_PER_SHARD for traces in planned if traces and traces // TRACES_PER_SHARD == number}
        reports = [ShardReport.model_validate_json(text) for text in dict.fromkeys(texts)]
        found = [report for report in reports if report.traces in {TRACES_PER_SHARD, *last}]
        if found:
            wholes[number] = sorted(found, key=lambda report: -report.traces)[: len(plans)]
    never = lost.get("unjudged hunt", set()) - wholes.keys()
    hunt.unjudged = never | (lost.get("unjudged again", set()) - {number for number, _ in again})
    hunt.judged_twice = len(again)
    hunt.mismatches = sum(number in hunts and report not in hunts[number] for number, report in again)
    # The hunt's own report adds up shards in order, up to the first gap; merged hunts each have their own order.
    end = _first_gap(wholes, never) if len(plans) == 1 else max(wholes, default=-1) + 1
    reports = [report for number, found in sorted(wholes.items()) if number < end for report in found]
    for report in reports:
        hunt.tally.add(report)
    hunt.num_shards = len(reports)
    return hunt, reports


def _first_gap(judged: Iterable[int], lost: Iterable[int]) -> int:
    """Return the number of the first shard that was neither judged nor lost."""
    known = {*judged, *lost}
    return next(number for number in range(len(known) + 1) if number not in known)
