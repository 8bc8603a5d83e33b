"""Read-only campaign: runs, results, shards, trials, findings and losses.

Several processes may read a campaign while another one writes it.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cluster.storage.database import check_version, connect_to_read
from cluster.storage.errors import CampaignError, StoreError, is_damage, storing
from cluster.storage.lock import is_locked, killed_run
from cluster.storage.provenance import Run
from cluster.storage.rows import checked_row
from cluster.storage.schema import TABLES, Cell, Row
from cluster.storage.wal import absence_of_log, damage_of_log
from workers.record.verdict import Judgement
from workers.run.shard import ShardReport
from workers.run.trials import Trial

DATABASE = "campaign.sqlite"


@dataclass(frozen=True, slots=True)
class Result:
    """The stored result of a job; `artefact` is a path inside the campaign directory."""

    job: str
    judgement: Judgement
    artefact: str | None
    scenario: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """The stored report of a shard of a hunt.

    Its role is hunt, again (second judgement) or canary.
    """

    job: str
    role: str
    number: int
    report: ShardReport


@dataclass(frozen=True, slots=True)
class LostLog:
    """Damage: the write-ahead log that a killed process must have left is missing.

    `remark` is the message.
    """

    run: str
    remark: str


def lost_log(folder: Path) -> LostLog | None:
    """Return the damage and the killed run if its write-ahead log is missing, else None.

    Call this before the database is opened, which may create a new log.
    """
    killed = killed_run(folder)
    remark = absence_of_log(folder / DATABASE) if killed is not None else None
    return None if killed is None or remark is None else LostLog(killed, remark)


class Contents(ABC):
    """A campaign's stored rows as typed values."""

    @abstractmethod
    def select(self, table: str, where: str = "1", values: Sequence[Cell] = ()) -> Iterator[Row]:
        """Yield a table's rows, checked, without their seals (digest columns)."""

    def runs(self) -> list[Run]:
        """Return the processes that wrote the campaign, first to last."""
        runs = [Run.model_validate_json(str(about)) for _, about in self.select("runs")]
        return sorted(runs, key=lambda run: (run.begun, run.run))

    def has_ended(self, run: str) -> bool:
        """Whether a run recorded its end, which is the last thing that it writes."""
        return any(Run.model_validate_json(str(about)).ended for _, about in self.select("runs", "run = ?", (run,)))

    def results(self) -> Iterator[Result]:
        """Yield the results of scenarios, in the order of their keys."""
        for row in self.select("results"):
            yield _result(row)

    def result(self, job: str) -> Result | None:
        """Return the stored result of a job."""
        return next((_result(row) for row in self.select("results", "job = ?", (job,))), None)

    def shards(self) -> Iterator[Shard]:
        """Yield the shards of hunts, in the order of their keys."""
        for job, role, number, _, report in self.select("shards"):
            yield Shard(str(job), str(role), int(number or 0), ShardReport.model_validate_json(str(report)))

    def trials(self) -> Iterator[Trial]:
        """Yield the trials of faults, in the order of their keys."""
        for *_, trial in self.select("trials"):
            yield Trial.model_validate_json(str(trial))

    def findings(self) -> Iterator[tuple[str, str]]:
        """Yield the stored findings of hunts: build, fingerprint, and state as JSON."""
        for bug, state in self.select("findings"):
            yield str(bug), str(state)

    def plans(self) -> list[str]:
        """Return the settings of hunts, as JSON; merged campaigns have several."""
        return [str(plan) for (plan,) in self.select("hunts")]

    def losses(self, run: str | None = None) -> Counter[str]:
        """Return the number of lost attempts by reason, of all processes or of one."""
        lost = self.select("attempts", "outcome = 'lost' AND reason IS NOT NULL")
        return Counter(str(reason) for _, _, by, _, _, reason in lost if run in (None, by))

    def answered(self) -> Counter[str]:
        """Return the number of answered attempts of each process, by the name of its run."""
        answered = self.select("attempts", "outcome NOT IN ('abandoned', 'lost')")
        return Counter(str(run) for _, _, run, *_ in answered)

    def contradictions(self) -> list[str]:
        """Return the jobs with two different answers; there should be none."""
        answers: dict[str, set[str]] = {}
        for job, digest, *_ in self.select("late"):
            answers.setdefault(str(job), set()).add(str(digest))
        for job, digests in answers.items():
            for *_, verdict, digest, _, _ in self.select("results", "job = ?", (job,)):
                if verdict != "lost":
                    digests.add(str(digest))
            for *_, digest, _ in self.select("shards", "job = ?", (job,)):
                digests.add(str(digest))
        return sorted(job for job, digests in answers.items() if len(digests) > 1)


def _result(row: Row) -> Result:
    job, scenario, attempt, _, _, artefact, judgement = row
    value = Judgement.model_validate_json(str(judgement))
    return Result(str(job), value, None if artefact is None else str(artefact), str(scenario), int(attempt or 0))


class Campaign(Contents, AbstractContextManager["Campaign"]):
    """A campaign directory opened for reading; a context manager.

    `remarks` lists read problems: altered rows are left out, and so is the content of a lost log.

    Raises:
        CampaignError: the folder is not a campaign of this version.
        StoreError: it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / DATABASE
        self.remarks: list[str] = []
        if not self.path.is_file():
            raise CampaignError(f"{folder}: is not a campaign: it has no {DATABASE}")
        if not self.path.stat().st_size:
            raise CampaignError(f"{self.path}: is empty (0 bytes); run its command again to start anew")
        with storing(self.path):
            # A log that another process writes may end within a frame.
            is_left = not is_locked(folder)
            damage = damage_of_log(self.path) if is_left else None
            lost = lost_log(folder) if is_left else None
            self._connection = self._open()
        if damage is None and lost is not None and not self.has_ended(lost.run):
            damage = lost.remark
        if damage is not None:
            self._remark(damage)

    def _open(self) -> sqlite3.Connection:
        try:
            connection = connect_to_read(self.path)
            try:
                check_version(connection, self.path)
            except BaseException:
                connection.close()
                raise
            return connection
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            what = f"{self.path}: is not a campaign database, or damaged: {error}"
            raise CampaignError(f"{what}; run its command again to repair it") from error

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the campaign's database."""
        self._connection.close()

    @property
    def is_being_written(self) -> bool:
        """Whether a process has the campaign open for writing."""
        return is_locked(self.folder)

    def select(
        self, table: str, where: str = "1", values: Sequence[Cell] = (), order: Sequence[str] = ()
    ) -> Iterator[Row]:
        """Yield the rows that are not altered; `remarks` counts the altered ones."""
        shape = TABLES[table]
        query = f"SELECT * FROM {table} WHERE {where} ORDER BY {', '.join((*order, *shape.keys))}"
        num_bad = 0
        try:
            with storing(self.path):
                for sealed in self._connection.execute(query, values):
                    if shape.is_sound(sealed):
                        yield checked_row(self.path, shape, sealed[:-1])
                    else:
                        num_bad += 1
        except StoreError as error:
            if not error.is_damage:
                raise
            self._remark(f"{self.path}: {table} could not be read to its end")
        if num_bad:
            rows = "row" if num_bad == 1 else "rows"
            self._remark(f"{self.path}: {num_bad:,} altered {rows} of {table} left out")

    def _remark(self, text: str) -> None:
        assert "\n" not in text, "a remark is one line"
        if text not in self.remarks:
            self.remarks.append(text)
