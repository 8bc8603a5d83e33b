"""Store: writes a campaign folder: results, attempts, artefacts, traces of running jobs.

One process writes a campaign. The trace of a job is written to `running/` before the job is dispatched and stays there
until its result is recorded, so that a kill at any moment loses nothing.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from cluster.dispatch.host import ReachError, running_file, write_ahead
from cluster.dispatch.inside import inside, make_inside, remove_inside
from cluster.dispatch.job import Answer, Job, ShardJob, TrialJob, command
from cluster.storage.artefact import artefact_name, is_artefact_of, portable, put_aside, write_artefact
from cluster.storage.campaign import DATABASE, Contents, Result, lost_log
from cluster.storage.database import Database
from cluster.storage.errors import CampaignError, StoreError, storing
from cluster.storage.lock import Claim, claim
from cluster.storage.progress import ProgressFile
from cluster.storage.provenance import PlannedWork, Run, after, this_run
from cluster.storage.schema import Cell, Row, text_digest
from workers.record.verdict import Judgement, Lost, is_finding
from workers.run.shard import ShardReport
from workers.run.trials import Trial
from workers.targets.target import RunConfig


class Store(Contents, AbstractContextManager["Store"]):
    """The only writer of a campaign folder; a context manager.

    It is opened by its folder, or by a claim of it, which is released when the store is closed. A new campaign is
    removed if it cannot be opened, or if Ray cannot be reached and no attempt was recorded.

    `run` is the record of this process. `remarks` lists damage (the affected jobs run again), `restored` lists
    artefacts that were written again, and `is_kept` says, at the end, whether all results are on the disk.

    Raises:
        CampaignError: another process has it open, or the directory is not a campaign of this version.
        StoreError: it cannot be written or read any further.
    """

    def __init__(self, place: Path | Claim, seed: int | None = None, engine: str = "") -> None:
        self._claim = place if isinstance(place, Claim) else claim(place)
        self.folder = folder = self._claim.folder
        self.run: Run = this_run(seed, engine)
        self._begun = time.monotonic()
        try:
            with storing(folder):
                for name in ("artefacts", "running"):
                    make_inside(folder, name)
                lost = lost_log(folder)
            self._db = Database(folder / DATABASE)
        except BaseException:
            self._claim.give_up()
            raise
        self.remarks = self._db.remarks
        self.restored: list[str] = []
        self.is_kept = True
        self.progress = ProgressFile(folder, self.run.run)
        self._slots: dict[tuple[str, int], int] = {}
        try:
            if lost is not None and not self.has_ended(lost.run):
                self.remarks.append(lost.remark)
            self._begin_run()
        except BaseException:
            self._give_up()
            raise

    def _begin_run(self) -> None:
        with self._db.transaction():
            written = self._db.insert("runs", (self.run.run, self.run.model_dump_json()))
            assert written, "a run has a name that no other has"
            for *attempt, _, _ in list(self._db.select("attempts", "outcome IS NULL")):
                self._db.insert("attempts", (*attempt, "abandoned", None), "REPLACE")
            # A lost job has no verdict: it is tried again, and its attempts stay on record.
            self._db.delete("results", "verdict = 'lost'")
        # From here on there is a write-ahead log, until the database is closed.
        with storing(self.folder):
            self._claim.note_run(self.run.run)

    def plan(self, planned: PlannedWork) -> None:
        """Record work that this process will judge, in addition to earlier calls."""
        before = self.run.planned
        both = PlannedWork(
            scenarios=before.scenarios | planned.scenarios,
            trials=(*before.trials, *planned.trials),
            traces=before.traces if planned.traces is None else planned.traces,
        )
        if both != before:
            self.run = self.run.model_copy(update={"planned": both})
            written = self._db.insert("runs", (self.run.run, self.run.model_dump_json()), "REPLACE")
            assert written, "the run has a row, and it is replaced"

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None and issubclass(kind, CampaignError | ReachError) and not self._has_begun():
            self._give_up()
        else:
            self.close()

    def _give_up(self) -> None:
        """Release the campaign folder; remove it if it is new."""
        try:
            with suppress(StoreError):
                self._db.close()
                self._claim.note_run(None)
        finally:
            self._claim.give_up()

    def _has_begun(self) -> bool:
        """Return whether an attempt was ever recorded."""
        with suppress(StoreError):
            return self._db.query("SELECT COUNT(*) FROM attempts")[0][0] != 0
        return True

    @property
    def is_in_place(self) -> bool:
        """Return whether the campaign folder is still the opened one, not removed or replaced."""
        return self._claim.is_in_place and (self.folder / DATABASE).is_file()

    def close(self) -> None:
        """Record the end of this process, and release the folder."""
        ended = self.run.model_copy(update={"ended": after(self.run.begun, time.monotonic() - self._begun)})
        try:
            # An error of the store was reported when it first occurred.
            with suppress(StoreError):
                self._db.insert("runs", (ended.run, ended.model_dump_json()), "REPLACE")
        finally:
            self._close()

    def _close(self) -> None:
        try:
            self._db.close()
            self._claim.note_run(None)
        finally:
            self._claim.release()

    def select(self, table: str, where: str = "1", values: Sequence[Cell] = ()) -> Iterator[Row]:
        return self._db.select(table, where, values)

    def transaction(self) -> AbstractContextManager[None]:
        """Make the writes inside atomic, even if this process is killed."""
        return self._db.transaction()

    def attempts_made(self, job: str) -> int:
        """Return the number of the newest attempt of a job, 0 without one."""
        query = "SELECT COALESCE(MAX(attempt), 0) FROM attempts WHERE job = ?"
        (number,) = self._db.query(query, (job,))[0]
        assert isinstance(number, int), number
        return number

    def begin(self, job: Job, attempt: int, slot: int, scenario: str) -> None:
        """Record an attempt of a job and write the trace before it runs."""
        file = self.running_file(job.key)
        how = command("run" if job.sweep else "replay", file.name, job.config)
        assert scenario, f"job {job.key} has a name for the user"
        lines = [f"being run: attempt {attempt} of {portable(scenario)}", f"run it again: {how}"]
        with storing(file):
            write_ahead(file, lines, job.trace)
        self.begin_attempt(job.key, attempt, slot)

    def running_file(self, job: str) -> Path:
        """Return the file with the trace of a running job; the file of a lost job stays."""
        return running_file(self.folder / "running", job)

    def record(self, job: Job, attempt: int, judgement: Judgement, scenario: str) -> Result:
        """Store a job's result, after its artefact; keep an earlier result."""
        artefact = None
        if is_finding(judgement.verdict):
            artefact = self.keep_artefact(judgement, scenario, job.config)
        kind, text = judgement.verdict.kind, judgement.model_dump_json()
        row = (job.key, scenario, attempt, kind, answer_digest(judgement), artefact, text)
        with self._db.transaction():
            is_first = self._db.insert("results", row)
            self._set_outcome(job.key, attempt, kind)
        if not isinstance(judgement.verdict, Lost):
            self._forget_running(job.key)
        if is_first:
            return Result(job.key, judgement, artefact, scenario, attempt)
        recorded = self.result(job.key)
        assert recorded is not None, f"job {job.key} was not written, and has no result"
        return recorded

    def _forget_running(self, job: str) -> None:
        assert job, "the file of a job, never the folder"
        with storing(self.folder / "running"):
            remove_inside(self.folder, f"running/{self.running_file(job).name}")

    def note_loss(self, job: str, attempt: int, reason: str) -> None:
        """Record that an attempt of a job was lost, and why."""
        self._set_outcome(job, attempt, "lost", reason)

    def _set_outcome(self, job: str, attempt: int, outcome: str, reason: str | None = None) -> None:
        assert outcome, f"an attempt of job {job} ended without an outcome"
        slot = self._slots.pop((job, attempt), None)
        if slot is not None:
            self._db.insert("attempts", (job, attempt, self.run.run, slot, outcome, reason), "REPLACE")

    def note_late(self, job: str, attempt: int, answer: Answer) -> None:
        """Record an answer whose attempt had been given up."""
        assert attempt >= 1, f"attempts of a job count from 1; job {job} was answered in {attempt}"
        text = answer.model_dump_json()
        self._db.insert("late", (job, answer_digest(answer), attempt, text))

    def keep_settings(self, settings: str) -> None:
        """Store the settings of a hunt.

        Raises:
            CampaignError: the campaign has other settings.
        """
        assert settings, "a hunt looks for something"
        kept = next((plan for plan in self.plans() if plan != settings), None)
        if kept is not None:
            raise CampaignError(f"{self.folder}: was begun as {kept}, now asked for is {settings}; give another --out")
        self._db.insert("hunts", (settings,))

    def begin_attempt(self, job: str, attempt: int, slot: int) -> None:
        """Record an attempt of a job, without its trace, before it runs."""
        assert attempt >= 1, f"attempts of a job count from 1; job {job} begins attempt {attempt}"
        assert (job, attempt) not in self._slots, f"attempt {attempt} of job {job} begins twice"
        self._slots[job, attempt] = slot
        self._db.insert("attempts", (job, attempt, self.run.run, slot, None, None), "ABORT")

    def keep_shard(self, job: ShardJob, attempt: int, report: ShardReport) -> None:
        assert report.traces == job.shard.traces, f"{job.shard.traces} traces, of which {report.traces} are reported"
        text = report.model_dump_json()
        with self._db.transaction():
            self._db.insert("shards", (job.key, job.role, job.shard.number, answer_digest(report), text))
            self._set_outcome(job.key, attempt, "reported")
        self._forget_running(job.key)

    def keep_unjudged(self, job: ShardJob, report: ShardReport) -> None:
        """Store an empty report for a lost shard; the next process judges the shard again."""
        assert not report.traces, "nothing of a lost shard was judged"
        text = report.model_dump_json()
        row = (f"{job.key}-unjudged", f"unjudged {job.role}", job.shard.number, text_digest(text), text)
        self._db.insert("shards", row)

    def shard(self, job: str) -> ShardReport | None:
        for *_, report in self._db.select("shards", "job = ?", (job,)):
            return ShardReport.model_validate_json(str(report))
        return None

    def keep_trial(self, job: TrialJob, attempt: int, trial: Trial) -> None:
        """Store the result of a fault trial, unless it is stored already."""
        assert (trial.fault, trial.number) == (job.fault, job.number), "an answer to another trial"
        text = trial.model_dump_json()
        with self._db.transaction():
            self._db.insert("trials", (job.key, text_digest(text), text))
            self._set_outcome(job.key, attempt, "measured")

    def trial(self, job: str) -> Trial | None:
        """Return the stored result of a fault trial, or None."""
        for *_, trial in self._db.select("trials", "job = ?", (job,)):
            return Trial.model_validate_json(str(trial))
        return None

    def keep_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> str:
        with storing(self.folder / "artefacts"):
            path = write_artefact(self.folder, judgement, name, config, "artefacts")
        return path.relative_to(self.folder).as_posix()

    def restore_artefact(self, judgement: Judgement, name: str, config: RunConfig) -> None:
        """Write a missing or damaged artefact again, and list it in `restored`.

        A damaged file is renamed.
        """
        with storing(self.folder / "artefacts"):
            path = inside(self.folder, "artefacts") / artefact_name(judgement)
            is_missing = not os.path.lexists(path)
            if is_missing or not is_artefact_of(path, judgement, config):
                aside = None if is_missing else put_aside(path)
                write_artefact(self.folder, judgement, name, config, "artefacts")
                assert is_artefact_of(path, judgement, config), f"{path} is not what was written"
                how = "was missing" if aside is None else f"was damaged, and stays as {aside.name}"
                self.restored.append(f"{path}: {how}; it was written again")

    def keep_finding(self, bug: str, state: str) -> None:
        assert bug, "a finding has a name"
        self._db.insert("findings", (bug, state), "REPLACE")

    def finding(self, bug: str) -> str | None:
        return next((str(state) for _, state in self._db.select("findings", "bug = ?", (bug,))), None)


def answer_digest(answer: Answer) -> str:
    """Return an answer's digest, without what depends on earlier jobs."""
    if isinstance(answer, Judgement | ShardReport):
        answer = answer.model_copy(update={"ran": ()})
    return text_digest(answer.model_dump_json())
