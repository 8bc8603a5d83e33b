"""Reader of a campaign directory for reports: values as they are stored, in JSON, in the order of a report."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from cluster.storage.campaign import Campaign
from cluster.storage.provenance import Run


class ResultRow(NamedTuple):
    """One recorded result as it is stored: `judgement` is JSON, `artefact` a path inside the campaign directory."""

    scenario: str
    verdict: str
    artefact: str | None
    judgement: str


class ShardRow(NamedTuple):
    """One report of a shard as it is stored, in JSON."""

    role: str
    number: int
    report: str


class CampaignReader:
    """The contents of one campaign directory; a context manager.

    Raises:
        CampaignError: the folder holds no campaign, or one that cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._campaign = Campaign(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._campaign.close()

    @property
    def num_damaged(self) -> int:
        """Return the number of rows left out so far because they were altered."""
        return self._campaign.num_altered

    def results(self) -> Iterator[ResultRow]:
        """Yield the results by scenario."""
        for row in self._campaign.select("results", order=("scenario",)):
            _, scenario, _, verdict, _, artefact, judgement = row
            where = None if artefact is None else str(artefact)
            yield ResultRow(str(scenario), str(verdict), where, str(judgement))

    def shards(self) -> Iterator[ShardRow]:
        """Yield the reports of shards, by role and number."""
        for _, role, number, _, report in self._campaign.select("shards", order=("role", "number")):
            yield ShardRow(str(role), int(number or 0), str(report))

    def trials(self) -> Iterator[str]:
        """Yield the trials of faults, in JSON."""
        yield from (str(trial) for *_, trial in self._campaign.select("trials"))

    def findings(self) -> Iterator[str]:
        """Yield the states of the findings of a hunt, in JSON."""
        yield from (state for _, state in self._campaign.findings())

    def plans(self) -> list[str]:
        """Return the settings of hunts, in JSON: none in a campaign without a hunt, several where some were merged."""
        return self._campaign.plans()

    def runs(self) -> list[tuple[Run, int]]:
        """Return the processes that wrote it, first to last, and the number of answered jobs of each."""
        answered = self._campaign.answered()
        return [(run, answered[run.run]) for run in self._campaign.runs()]

    def contradictions(self) -> list[str]:
        """Return the jobs with two different answers."""
        return self._campaign.contradictions()
