"""Jobs and answers: what is sent to a worker and what comes back.

A key says what is to be done and by which code.
"""

import importlib.metadata
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import Field

from cluster.dispatch.origin import ROOT
from cluster.dispatch.ray_job import reader_program
from scenarios import codec
from scenarios.generation.shards import Shard
from scenarios.spec import Value
from scenarios.trace import Trace
from scenarios.visible import is_visible, visible_line
from workers.edits.fix import FILE as FIX_FILE
from workers.record.names import Key
from workers.record.verdict import Judgement
from workers.run.shard import ShardReport
from workers.run.trials import Trial
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import Tried
from workers.targets.target import DEFAULT_CONFIG, RunConfig

WORKER = "workers.run.worker:Worker"
# Splitting a text takes a time that grows with the square of its length.
COMMAND_MAX = 32 * 1024


@runtime_checkable
class Judge(Protocol):
    """Judge of traces that a worker process hosts; outside of tests `workers.run.worker.Worker`."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Run a trace, under many schedules if `sweep`, and return its judgement."""


@runtime_checkable
class ShardJudge(Judge, Protocol):
    """A judge that also judges shards of generated traces and tries candidates of the shrinker."""

    def hunt(
        self,
        shard: Shard,
        begin: Callable[[Trace], None],
        config: RunConfig = DEFAULT_CONFIG,
        *,
        to_first_finding: bool = False,
    ) -> ShardReport:
        """Judge a shard of generated traces, perhaps only to its first finding; `begin` is called with each trace."""

    def attempt(self, candidates: list[Trace], target: Signature, config: RunConfig = DEFAULT_CONFIG) -> Tried:
        """Try candidates in order until one fails as the target does."""


class Job(Value):
    """One trace to be judged; `key` identifies it over campaigns, hosts and attempts."""

    kind: Literal["judge"] = "judge"
    key: Key
    trace: Trace
    sweep: bool
    config: RunConfig = RunConfig()

    @classmethod
    def of(cls, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> "Job":
        """Return the job of judging a trace with the code at hand."""
        return cls(key=job_key(trace, sweep, build(), config), trace=trace, sweep=sweep, config=config)


Role: TypeAlias = Literal["hunt", "again", "canary"]


class ShardJob(Value):
    """A shard of a hunt; each trace is in `running` before it runs, where that folder can be reached."""

    kind: Literal["shard"] = "shard"
    key: Key
    role: Role
    shard: Shard
    running: str
    config: RunConfig = RunConfig()

    @classmethod
    def of(cls, role: Role, shard: Shard, running: Path, config: RunConfig = DEFAULT_CONFIG) -> "ShardJob":
        """Return the job of judging a shard with the code at hand."""
        key = digest_of(role, shard.model_dump_json(), build(), config.text)
        return cls(key=key, role=role, shard=shard, running=str(running), config=config)


class TryJob(Value):
    """Candidates of the shrinker, to be tried in order."""

    kind: Literal["try"] = "try"
    key: Key
    candidates: tuple[Trace, ...]
    target: Signature
    config: RunConfig = RunConfig()


class TrialJob(Value):
    """One trial of a fault."""

    kind: Literal["trial"] = "trial"
    key: Key
    fault: str
    number: int
    traces_max: int
    baseline: bool
    config: RunConfig = RunConfig()

    @classmethod
    def of(
        cls, fault: str, number: int, traces_max: int, baseline: bool, config: RunConfig = DEFAULT_CONFIG
    ) -> "TrialJob":
        """Return the job of one trial with the code at hand."""
        key = digest_of(fault, number, traces_max, baseline, build(), config.text)
        return cls(key=key, fault=fault, number=number, traces_max=traces_max, baseline=baseline, config=config)


AnyJob: TypeAlias = Annotated[Job | ShardJob | TryJob | TrialJob, Field(discriminator="kind")]
Answer: TypeAlias = Judgement | ShardReport | Tried | Trial


def job_key(trace: Trace, sweep: bool, code: str, config: RunConfig = DEFAULT_CONFIG) -> str:
    """Return the digest of everything that can change the result of a job."""
    return digest_of(codec.dumps(trace), "sweep" if sweep else "one schedule", code, config.text)


def digest_of(*parts: object) -> str:
    """Return the digest of some values by their texts."""
    return blake2b("\x00".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def command(what: str, file: Path | str, config: RunConfig) -> str:
    """Return the command line of subcommand `what` for a trace file under a configuration."""
    return " ".join(map(_quoted, ["specstorm", *what.split(), *config.flags(), str(file)]))


def _quoted(word: str) -> str:
    """Return a word as a shell reads it; one with control characters as bash reads it, on one line."""
    if is_visible(word):
        return shlex.quote(word)
    return f"$'{visible_line(word.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39)))}'"


def words_of(command: str) -> list[str]:
    """Return the words of a command line that was recorded.

    Raises:
        ValueError: it is too long to be split in a moment, or a quote does not end.
    """
    if len(command) > COMMAND_MAX:
        raise ValueError(f"more than {COMMAND_MAX:,} characters")
    return shlex.split(command)


def program() -> str:
    """Return the command that starts this program again from the working directory.

    In a Ray job, the one that starts it where the job's log is read.
    """
    reader = reader_program(os.environ)
    if reader is not None:
        return reader
    script = Path(sys.argv[0])
    if script.name == "specstorm" and script.is_file():
        found = shutil.which("specstorm")
        if found is not None and Path(found).resolve() == script.resolve():
            return "specstorm"
        return shlex.quote(_from_here(script))
    return f"{shlex.quote(_from_here(Path(sys.executable)))} -m cluster"


def _from_here(path: Path) -> str:
    """Return a path relative to the working directory if it is below that, else absolute; links are not followed."""
    absolute = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


def typed(what: str, file: Path | str, config: RunConfig) -> str:
    """Return a command as it can be typed where this process was started; never written into a file."""
    return command(what, file, config).replace("specstorm", program(), 1)


def version() -> str:
    """Return the version of the distribution, from its own folder first: a checkout need not be installed."""
    pyproject = ROOT / "pyproject.toml"
    if pyproject.is_file():
        project = tomllib.loads(pyproject.read_text()).get("project", {})
        if "version" in project:
            return str(project["version"])
    try:
        return importlib.metadata.version("specstorm")
    except importlib.metadata.PackageNotFoundError:
        return "unversioned"


@cache
def build() -> str:
    """Return the version with a digest of the code that judges, so that edited code never reuses old results."""
    return f"{version()}+{code_digest(ROOT, ('findings', 'scenarios', 'workers'))}"


def code_digest(root: Path, packages: Iterable[str]) -> str:
    """Return a digest of the names and contents of all Python files, and all fixes of findings, in some packages."""
    digest = blake2b(digest_size=8)
    for package in packages:
        for file in sorted((*(root / package).rglob("*.py"), *(root / package).rglob(FIX_FILE))):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()}\x00{len(content)}\x00".encode())
            digest.update(content)
    return digest.hexdigest()


def load_judge(factory: str) -> Judge:
    """Return a new judge from `module:name`; the module is imported here, in the process that will run it."""
    module, _, name = factory.partition(":")
    __import__(module)
    judge = getattr(sys.modules[module], name)()
    assert isinstance(judge, Judge), f"{factory} has no method judge"
    return judge
