"""Worker host: a process that judges the jobs it receives as JSON."""

import os
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from cluster.dispatch.inside import remove_inside, writing_inside
from cluster.dispatch.job import Answer, AnyJob, Job, ShardJob, ShardJudge, TrialJob, TryJob, build, command, load_judge
from cluster.dispatch.origin import foreign_packages
from scenarios import codec
from scenarios.codec import comment
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Judgement
from workers.run.process import prepare_process
from workers.run.shard import ShardReport
from workers.run.trials import Trial, run_trial
from workers.shrink.shrinker import TriedCandidates
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

_JOB: TypeAdapter[AnyJob] = TypeAdapter(AnyJob)


class PoolError(RuntimeError):
    """The pool cannot work at all, whatever the jobs are."""


class ReachError(ValueError):
    """No cluster can be joined at an address; the message says why, and what to do."""


class EngineHost:
    """Judges jobs in a worker process, one at a time; a job leaves nothing for the next one."""

    def __init__(self, factory: str) -> None:
        foreign = foreign_packages()
        if foreign:
            raise PoolError("; ".join(foreign))
        self._judge = load_judge(factory)
        prepare_process()

    def ready(self) -> tuple[str, int]:
        """Return the build of this worker's code, and its process id."""
        return build(), os.getpid()

    def perform(self, job: str) -> str:
        """Return the answer to a job, both as JSON."""
        return self._answer(_JOB.validate_json(job)).model_dump_json()

    def _answer(self, job: AnyJob) -> Answer:
        if isinstance(job, Job):
            judgement = self._judge.judge(job.trace, job.sweep, job.config)
            return judgement.model_copy(update={"ran": _ran(job.config)})
        if isinstance(job, TrialJob):
            return run_trial(job.fault, job.number, job.traces_max, job.baseline, ModelValueCache(), config=job.config)
        assert isinstance(self._judge, ShardJudge), "this judge knows no shards"
        if isinstance(job, TryJob):
            return self._judge.attempt(list(job.candidates), job.target, job.config)
        file = running_file(Path(job.running), job.key)
        reachable = file.parent.is_dir()
        lines = ["being run under eager, lazy and one random schedule"]
        lines.append(f"run it again: {command('run', file.name, job.config)}")
        begin = partial(write_ahead, file, lines) if reachable else lambda trace: None
        # The second report of a shard is compared with the complete first one, so it does not stop at a finding.
        is_split = job.role == "hunt"
        report = self._judge.hunt(job.shard, begin, job.config, to_first_finding=is_split)
        remove_inside(file.parents[1], f"{file.parent.name}/{file.name}")
        return report.model_copy(update={"ran": _ran(job.config)})


def _ran(config: RunConfig) -> tuple[str, ...]:
    """Return the edited functions that ran in this process, each reported once."""
    return tuple(target_kind(config.engine).newly_run(config)) if config.engine_path else ()


def running_file(folder: Path, job: str) -> Path:
    """Return the file with the trace of a running job; it stays if the process dies."""
    return folder / f"{job}.yaml"


def read_answer(job: AnyJob, text: str) -> Answer:
    """Parse an answer of `EngineHost.perform`."""
    kinds: dict[type[AnyJob], type[Answer]] = {
        Job: Judgement,
        ShardJob: ShardReport,
        TryJob: TriedCandidates,
        TrialJob: Trial,
    }
    return kinds[type(job)].model_validate_json(text)


def write_ahead(file: Path, lines: list[str], trace: Trace) -> None:
    """Write a trace to `running/<job>.yaml` of a campaign, before it runs.

    After a kill the file is complete, either new or old.

    It is not synced to the disk: it must survive this process, but after a power cut no job runs.
    """
    with writing_inside(file.parents[1], f"{file.parent.name}/{file.name}", is_durable=False) as opened:
        opened.write((comment(lines) + codec.dumps(trace)).encode())
