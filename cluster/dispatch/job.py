"""Jobs and answers: the messages to a worker and back.

The key of a job depends on its content and on the code that runs it.
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
from workers.shrink.shrinker import TriedCandidates
from workers.targets.target import DEFAULT_CONFIG, RunConfig

WORKER = "workers.run.worker:Worker"
# shlex needs time quadratic in the length of a text.
COMMAND_MAX = 32 * 1024


@runtime_checkable
class Judge(Protocol):
    """Interface of an object that judges traces in a worker process."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Run a trace under its schedule, or with `sweep` under many; return its judgement."""


@runtime_checkable
class ShardJudge(Judge, Protocol):
    """A judge that can also judge shards of generated traces and try shrinker candidates."""

    def hunt(
        self,
        shard: Shard,
        begin: Callable[[Trace], None],
        config: RunConfig = DEFAULT_CONFIG,
        *,
        to_first_finding: bool = False,
    ) -> ShardReport:
        """Judge a shard of generated traces, or only up to its first finding.

        `begin` is called with each trace.
        """

    def attempt(
        self, candidates: list[Trace], target: Signature, config: RunConfig = DEFAULT_CONFIG
    ) -> TriedCandidates:
        """Run the candidates in order until one has the same finding as `target`."""


class Job(Value):
    """Job: judge one trace; `key` is equal in all campaigns, hosts and attempts."""

    kind: Literal["judge"] = "judge"
    key: Key
    trace: Trace
    sweep: bool
    config: RunConfig = RunConfig()

    @classmethod
    def of(cls, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> "Job":
        """Return the job that judges a trace; its key has a digest of the current code."""
        return cls(key=job_key(trace, sweep, build(), config), trace=trace, sweep=sweep, config=config)


Role: TypeAlias = Literal["hunt", "again", "canary"]


class ShardJob(Value):
    """Job: judge a shard of a hunt.

    Each trace is written to folder `running` before it runs, if the worker can access the folder.
    """

    kind: Literal["shard"] = "shard"
    key: Key
    role: Role
    shard: Shard
    running: str
    config: RunConfig = RunConfig()

    @classmethod
    def of(cls, role: Role, shard: Shard, running: Path, config: RunConfig = DEFAULT_CONFIG) -> "ShardJob":
        """Return the job that judges a shard; its key has a digest of the current code."""
        key = digest_of(role, shard.model_dump_json(), build(), config.text)
        return cls(key=key, role=role, shard=shard, running=str(running), config=config)


class TryJob(Value):
    """Job: run the shrinker's candidates in order."""

    kind: Literal["try"] = "try"
    key: Key
    candidates: tuple[Trace, ...]
    target: Signature
    config: RunConfig = RunConfig()


class TrialJob(Value):
    """Job: count the traces until one reveals a planted fault."""

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
        """Return the job of one trial; its key has a digest of the current code."""
        key = digest_of(fault, number, traces_max, baseline, build(), config.text)
        return cls(key=key, fault=fault, number=number, traces_max=traces_max, baseline=baseline, config=config)


AnyJob: TypeAlias = Annotated[Job | ShardJob | TryJob | TrialJob, Field(discriminator="kind")]
Answer: TypeAlias = Judgement | ShardReport | TriedCandidates | Trial


def job_key(trace: Trace, sweep: bool, code: str, config: RunConfig = DEFAULT_CONFIG) -> str:
    """Return the digest of everything that can change a job's result."""
    return digest_of(codec.dumps(trace), "sweep" if sweep else "one schedule", code, config.text)


def digest_of(*parts: object) -> str:
    """Return a digest of some values, computed from their text."""
    return blake2b("\x00".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def command(what: str, file: Path | str, config: RunConfig) -> str:
    """Return the command line of a subcommand for a trace file under a run configuration."""
    return " ".join(map(_quoted, ["specstorm", *what.split(), *config.flags(), str(file)]))


def _quoted(word: str) -> str:
    """Return a word quoted for a shell.

    One with control characters is quoted for bash, on one line.
    """
    if is_visible(word):
        return shlex.quote(word)
    return f"$'{visible_line(word.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39)))}'"


def words_of(command: str) -> list[str]:
    """Return the words of a recorded command line.

    Raises:
        ValueError: it is too long to be split quickly, or a quote does not end.
    """
    if len(command) > COMMAND_MAX:
        raise ValueError(f"more than {COMMAND_MAX:,} characters")
    return shlex.split(command)


def program() -> str:
    """Return the command that starts this program from the working directory.

    In a Ray job, it is the command on the machine that reads the job's log.
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
    """Return a path relative to the working directory if it is inside, else unchanged.

    Links are not followed.
    """
    absolute = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


def typed_command(what: str, file: Path | str, config: RunConfig) -> str:
    """Return the command that a user can type in the working directory.

    It is never written into a file.
    """
    return command(what, file, config).replace("specstorm", program(), 1)


def version() -> str:
    """Return the version of the distribution.

    The checkout is read first, since it need not be installed.
    """
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
    """Return the version with a digest of the judging code.

    So edited code never reuses old results.
    """
    return f"{version()}+{code_digest(ROOT, ('findings', 'scenarios', 'workers'))}"


def code_digest(root: Path, packages: Iterable[str]) -> str:
    """Return a digest of all Python files and fixes in some packages."""
    digest = blake2b(digest_size=8)
    for package in packages:
        for file in sorted((*(root / package).rglob("*.py"), *(root / package).rglob(FIX_FILE))):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()}\x00{len(content)}\x00".encode())
            digest.update(content)
    return digest.hexdigest()


def load_judge(factory: str) -> Judge:
    """Return a new judge from `module:name`.

    The module is imported in this process, which will run it.
    """
    module, _, name = factory.partition(":")
    __import__(module)
    judge = getattr(sys.modules[module], name)()
    assert isinstance(judge, Judge), f"{factory} has no method judge"
    return judge
