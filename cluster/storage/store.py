"""Store: a campaign directory with results, attempts, artefacts of findings, and the traces being run.

One process writes a campaign, and commits after every result. `running/` is written ahead: the trace of a job is on
the disk before the job is dispatched and stays there until its result is, so that a kill at any moment loses nothing.
"""

import fcntl
import os
import sqlite3
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Self

from cluster.dispatch.host import running_file
from cluster.dispatch.job import Answer, Job, ShardJob, TrialJob, command
from cluster.storage.artefact import portable, write_artefact, write_atomically
from scenarios import codec
from scenarios.codec import comment
from workers.record.verdict import Judgement, Lost, is_finding
from workers.run.shard import ShardReport
from workers.run.trials import Trial
from workers.targets.target import RunConfig

_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    job TEXT PRIMARY KEY, scenario TEXT NOT NULL, attempt INTEGER NOT NULL, verdict TEXT NOT NULL,
    digest TEXT NOT NULL, artefact TEXT, judgement TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
    job TEXT NOT NULL, attempt INTEGER NOT NULL, slot INTEGER NOT NULL, outcome TEXT,
    PRIMARY KEY (job, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS late (
    job TEXT NOT NULL, attempt INTEGER NOT NULL, digest TEXT NOT NULL, judgement TEXT NOT NULL,
    PRIMARY KEY (job, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hunts (id INTEGER PRIMARY KEY CHECK (id = 1), plan TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS shards (
    job TEXT PRIMARY KEY, role TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL, report TEXT NOT NULL
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trials (job TEXT PRIMARY KEY, trial TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS findings (bug TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
"""
_SCHEMA_VERSION = 1


class CampaignError(ValueError):
    """A campaign directory cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Result:
    """The recorded result of a job; `artefact` is a path inside the campaign directory."""

    job: str
    judgement: Judgement
    artefact: str | None


def digest_of(answer: Answer) -> str:
    """Return a digest of everything a worker says; equal attempts have equal digests."""
    return blake2b(answer.model_dump_json().encode(), digest_size=16).hexdigest()


class Store:
    """The only reader and writer of one campaign directory; a context manager.

    Raises:
        CampaignError: another process has it open, or the directory is not a campaign of this version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            for path in (folder, folder / "artefacts", folder / "running"):
                path.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "campaign.lock").open("w")
        except OSError as error:
            raise CampaignError(f"{folder}: cannot be written: {error.strerror}; give another --out") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise CampaignError(f"{folder}: another process is writing this campaign; give another --out") from error
        try:
            self._db = self._open_database(folder / "campaign.sqlite")
        except BaseException:
            self._lock.close()
            raise

    @staticmethod
    def _open_database(path: Path) -> sqlite3.Connection:
        database = sqlite3.connect(path, isolation_level=None)
        try:
            (found,) = database.execute("PRAGMA user_version").fetchone()
            if found not in (0, _SCHEMA_VERSION):
                wanted = f"wanted version {_SCHEMA_VERSION}; give another --out"
                raise CampaignError(f"{path}: is a campaign of version {found}; {wanted}")
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(_SCHEMA)
            database.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
            database.execute("UPDATE attempts SET outcome = 'abandoned' WHERE outcome IS NULL")
            # A lost job has no verdict: it is tried again, and its attempts stay on record.
            database.execute("DELETE FROM results WHERE verdict = 'lost'")
        except sqlite3.DatabaseError as error:
            database.close()
            raise CampaignError(f"{path}: is not a campaign database: {error}; give another --out") from error
        except BaseException:
            database.close()
            raise
        return database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process use the directory."""
        self._db.close()
        self._lock.close()

    def attempts_made(self, job: str) -> int:
        """Return the number of the newest attempt of a job, 0 if there is none."""
        query = "SELECT COALESCE(MAX(attempt), 0) FROM attempts WHERE job = ?"
        return int(self._db.execute(query, (job,)).fetchone()[0])

    def begin(self, job: Job, attempt: int, slot: int, scenario: str) -> None:
        """Write an attempt and its trace down before it runs."""
        how = command("run" if job.sweep else "replay", self.running_file(job.key).name, job.config)
        head = comment([f"being run: attempt {attempt} of {portable(scenario)}", f"run it again: {how}"])
        write_atomically(self.running_file(job.key), head + codec.dumps(job.trace))
        self.begin_attempt(job.key, attempt, slot)

    def running_file(self, job: str) -> Path:
        """Return where the trace of a job lies while it runs, and stays when it is lost."""
        return running_file(self.folder / "running", job)

    def record(self, job: Job, attempt: int, judgement: Judgement, scenario: str) -> Result:
        """Write the result of a job down, its artefact first; a job that has one keeps it."""
        artefact = None
        if is_finding(judgement.verdict):
            path = write_artefact(self.folder / "artefacts", judgement, scenario, job.config)
            artefact = path.relative_to(self.folder).as_posix()
        kind, digest = judgement.verdict.kind, digest_of(judgement)
        row = (job.key, scenario, attempt, kind, digest, artefact, judgement.model_dump_json())
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._set_outcome(job.key, attempt, kind)
        if not isinstance(judgement.verdict, Lost):
            self.running_file(job.key).unlink(missing_ok=True)
        recorded = self.result(job.key)
        assert recorded is not None
        return recorded

    def note_loss(self, job: str, attempt: int, reason: str) -> None:
        """Write down that an attempt was lost."""
        self._set_outcome(job, attempt, f"lost: {reason}")

    def _set_outcome(self, job: str, attempt: int, outcome: str) -> None:
        assert outcome, f"an attempt of job {job} ended without an outcome"
        update = "UPDATE attempts SET outcome = ? WHERE job = ? AND attempt = ? AND outcome IS NULL"
        self._db.execute(update, (outcome, job, attempt))

    def note_late(self, job: str, attempt: int, answer: Answer) -> None:
        """Write an answer down that came after its attempt was given up."""
        assert attempt >= 1, f"attempts of a job count from 1; job {job} was answered in {attempt}"
        row = (job, attempt, digest_of(answer), answer.model_dump_json())
        self._db.execute("INSERT OR IGNORE INTO late VALUES (?, ?, ?, ?)", row)

    def contradictions(self) -> list[str]:
        """Return the jobs of which two attempts came to different judgements; there must be none."""
        query = (
            "SELECT job FROM results JOIN late USING (job) "
            "WHERE results.digest != late.digest AND results.verdict != 'lost' "
            "UNION SELECT job FROM shards JOIN late USING (job) WHERE shards.digest != late.digest ORDER BY job"
        )
        return [job for (job,) in self._db.execute(query)]

    def result(self, job: str) -> Result | None:
        """Return the recorded result of a job."""
        row = self._db.execute("SELECT judgement, artefact FROM results WHERE job = ?", (job,)).fetchone()
        return None if row is None else Result(job, Judgement.model_validate_json(row[0]), row[1])

    def keep_settings(self, settings: str) -> None:
        """Write down what this campaign hunts for.

        Raises:
            CampaignError: it was begun with other settings.
        """
        assert settings, "a hunt looks for something"
        self._db.execute("INSERT OR IGNORE INTO hunts VALUES (1, ?)", (settings,))
        (kept,) = self._db.execute("SELECT plan FROM hunts").fetchone()
        if kept != settings:
            raise CampaignError(f"{self.folder}: was begun as {kept}, now asked for is {settings}; give another --out")

    def begin_attempt(self, job: str, attempt: int, slot: int) -> None:
        """Write an attempt down before it runs."""
        made = self.attempts_made(job)
        assert attempt > made, f"attempt {attempt} of job {job} begins after attempt {made}"
        self._db.execute("INSERT INTO attempts VALUES (?, ?, ?, NULL)", (job, attempt, slot))

    def keep_shard(self, job: ShardJob, attempt: int, report: ShardReport) -> None:
        """Write the report of a shard down; one that has a report keeps it."""
        assert report.traces == job.shard.traces, f"{job.shard.traces} traces, of which {report.traces} are reported"
        row = (job.key, job.role, job.shard.number, digest_of(report), report.model_dump_json())
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR IGNORE INTO shards VALUES (?, ?, ?, ?, ?)", row)
            self._set_outcome(job.key, attempt, "reported")
        self.running_file(job.key).unlink(missing_ok=True)

    def shard(self, job: str) -> ShardReport | None:
        """Return the report of a shard."""
        row = self._db.execute("SELECT report FROM shards WHERE job = ?", (job,)).fetchone()
        return None if row is None else ShardReport.model_validate_json(row[0])

    def keep_trial(self, job: TrialJob, attempt: int, trial: Trial) -> None:
        """Write a trial down; one that was kept before stays."""
        assert (trial.fault, trial.number) == (job.fault, job.number), "an answer to another trial"
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR IGNORE INTO trials VALUES (?, ?)", (job.key, trial.model_dump_json()))
            self._set_outcome(job.key, attempt, "measured")

    def trial(self, job: str) -> Trial | None:
        """Return a trial that was kept."""
        row = self._db.execute("SELECT trial FROM trials WHERE job = ?", (job,)).fetchone()
        return None if row is None else Trial.model_validate_json(row[0])

    def keep_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> str:
        """Write the artefact of a finding and return its path in the campaign directory."""
        return write_artefact(self.folder / "artefacts", judgement, name, config).relative_to(self.folder).as_posix()

    def keep_finding(self, bug: str, state: str) -> None:
        """Write down how far a finding has been worked on."""
        assert bug, "a finding has a name"
        self._db.execute("INSERT OR REPLACE INTO findings VALUES (?, ?)", (bug, state))

    def finding(self, bug: str) -> str | None:
        """Return how far a finding was worked on."""
        row = self._db.execute("SELECT state FROM findings WHERE bug = ?", (bug,)).fetchone()
        return None if row is None else str(row[0])


def new_campaign_folder(parent: Path, stem: str) -> Path:
    """Create and return the first free folder `<stem>-<number>`; of two processes each gets its own."""
    parent.mkdir(parents=True, exist_ok=True)
    names = [path.name.rpartition("-") for path in parent.iterdir()]
    taken = [int(number) for name, _, number in names if name == stem and number.isdecimal()]
    number = max(taken, default=0)
    while True:
        number += 1
        folder = parent / f"{stem}-{number:04d}"
        try:
            os.mkdir(folder)
        except FileExistsError:
            continue
        return folder
