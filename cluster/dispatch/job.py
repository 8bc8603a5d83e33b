"""What is sent to a worker and what comes back: a trace, a shard of a hunt, candidates of the shrinker, or a trial.

A key says what is to be done and by which code.
"""

import importlib.metadata
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import Field

from cluster.dispatch.origin import ROOT
from scenarios import codec
from scenarios.shards import Shard
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.verdict import Judgement
from workers.run.shard import ShardReport
from workers.run.trials import Trial
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import Tried
from workers.targets.devices import Device

WORKER = "workers.run.worker:Worker"


@runtime_checkable
class Judge(Protocol):
    """What a worker process hosts; `workers.run.worker.Worker` is the one that matters."""

    def judge(self, trace: Trace, sweep: bool, device: Device = "sim") -> Judgement:
        """Run a trace on a device, under many schedules if `sweep`, and say what it came to."""


@runtime_checkable
class Huntsman(Judge, Protocol):
    """A judge that also hunts and shrinks."""

    def hunt(self, shard: Shard, begin: Callable[[Trace], None], device: Device = "sim") -> ShardReport:
        """Judge a shard of generated traces on a device; `begin` is told of each before it runs."""

    def attempt(self, candidates: list[Trace], target: Signature, device: Device = "sim") -> Tried:
        """Try candidates in order on a device until one fails as the target does."""


class Job(Value):
    """One trace to be judged on a device; `key` identifies it over campaigns, hosts and attempts."""

    kind: Literal["judge"] = "judge"
    key: str
    trace: Trace
    sweep: bool
    device: Device = "sim"

    @classmethod
    def of(cls, trace: Trace, sweep: bool, device: Device = "sim") -> "Job":
        """Return the job of judging a trace with the code at hand."""
        return cls(key=job_key(trace, sweep, build(), device), trace=trace, sweep=sweep, device=device)


Role: TypeAlias = Literal["hunt", "again", "canary"]


class ShardJob(Value):
    """A shard of a hunt on a device; each trace is in `running` before it runs, where that folder can be reached."""

    kind: Literal["shard"] = "shard"
    key: str
    role: Role
    shard: Shard
    running: str
    device: Device = "sim"

    @classmethod
    def of(cls, role: Role, shard: Shard, running: Path, device: Device = "sim") -> "ShardJob":
        """Return the job of judging a shard with the code at hand."""
        text = "\x00".join((role, shard.model_dump_json(), build(), device))
        key = blake2b(text.encode(), digest_size=16).hexdigest()
        return cls(key=key, role=role, shard=shard, running=str(running), device=device)


class TryJob(Value):
    """Candidates of the shrinker, to be tried in order on a device."""

    kind: Literal["try"] = "try"
    key: str
    candidates: tuple[Trace, ...]
    target: Signature
    device: Device = "sim"


class TrialJob(Value):
    """One trial of a fault on a device."""

    kind: Literal["trial"] = "trial"
    key: str
    fault: str
    number: int
    traces_max: int
    baseline: bool
    device: Device = "sim"

    @classmethod
    def of(cls, fault: str, number: int, traces_max: int, baseline: bool, device: Device = "sim") -> "TrialJob":
        """Return the job of one trial with the code at hand."""
        text = "\x00".join((fault, str(number), str(traces_max), str(baseline), build(), device))
        key = blake2b(text.encode(), digest_size=16).hexdigest()
        return cls(key=key, fault=fault, number=number, traces_max=traces_max, baseline=baseline, device=device)


AnyJob: TypeAlias = Annotated[Job | ShardJob | TryJob | TrialJob, Field(discriminator="kind")]
Answer: TypeAlias = Judgement | ShardReport | Tried | Trial


def job_key(trace: Trace, sweep: bool, code: str, device: Device = "sim") -> str:
    """Return the digest of everything that can change the result of a job."""
    text = "\x00".join((codec.dumps(trace), "sweep" if sweep else "one schedule", code, device))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def command(what: str, file: Path | str, device: Device) -> str:
    """Return the command line that does something with a trace on a device."""
    return shlex.join(["specstorm", *what.split(), *([] if device == "sim" else ["--device", device]), str(file)])


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
    """Return the version with a digest of the code that judges, so that edited code never meets old results."""
    return f"{version()}+{code_digest(ROOT, ('scenarios', 'workers'))}"


def code_digest(root: Path, packages: Iterable[str]) -> str:
    """Return a digest of the names and contents of all Python files of some packages."""
    digest = blake2b(digest_size=8)
    for package in packages:
        for file in sorted((root / package).rglob("*.py")):
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
