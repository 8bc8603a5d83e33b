"""Trial of a reversal: run hunt traces on an edited engine until one finds the edit."""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.generation.shards import Shard
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.edits.edit import Edit
from workers.edits.fix import ALL
from workers.edits.tree import overlay
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Site
from workers.record.verdict import Verdict
from workers.run.check import explain_finding
from workers.run.shard import judged_by_sample, judged_in_full, shard_traces
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import DeviceError, RunConfig, Unconfirmed

ROOT = Path(__file__).resolve().parents[3]
T = TypeVar("T")
_COMPILED = shutil.ignore_patterns("*.so")
Source: TypeAlias = Literal["drawn", "scenarios"]
# How near the first report's source locations are to the edit: its function, its file, elsewhere, or no location.
Nearness: TypeAlias = Literal["function", "file", "elsewhere", "nowhere"]


class Task(NamedTuple):
    """A trial to run: a reversal's edits on an engine, with a limit of CPU minutes.

    `sources` is the root of a release's sources, which are edited in the place of the installed ones; "" for none.
    """

    id: str
    edits: tuple[Edit, ...]
    engine: str
    source: Source = "drawn"
    seed: int = 0
    minutes: float = 10.0
    sources: str = ""

    @property
    def key(self) -> str:
        """Return the key of the trial, which does not depend on the project's code version."""
        edits = "\n".join(edit.model_dump_json(exclude_defaults=True) for edit in self.edits)
        digest = blake2b(edits.encode(), digest_size=4).hexdigest()
        return f"{self.id} {digest} {self.engine} {self.source} {self.seed} {self.minutes:g}"


class Found(Value):
    """First finding that only the edited engine has: fingerprint, plane, nearness to the edit."""

    bug: str
    plane: str
    sites: tuple[str, ...]
    nearness: Nearness
    trace: str


class Result(Value):
    """Result of a trial: number of traces and CPU seconds, judge and edited engine together.

    `passed` counts earlier findings that the release gives too, or that were not confirmed;
    `refused` says why the edited engine could not start.
    """

    key: str
    id: str
    engine: str
    source: Source
    traces: int
    seconds: float
    found: Found | None = None
    passed: int = 0
    refused: str = ""


def installed(engine: str) -> Path:
    """Return the folder in which the package of an engine is installed.

    Raises:
        DeviceError: the engine is not installed.
    """
    kind, config = target_kind(engine), RunConfig(engine=engine)
    kind.require(config)
    found = kind.installed(config)
    assert found is not None, "the engine is a separate package"
    return found


def drawn(engine: str, seed: int) -> Iterator[tuple[str, Trace]]:
    """Yield the traces of an engine's hunt with a seed, without end, by name."""
    config = RunConfig(engine=engine)
    for number in count():
        shard = Shard(profile="mixed", seed=seed, number=number)
        for index, trace in enumerate(shard_traces(shard, config)):
            yield f"trace {number}.{index}", trace


def scenarios(engine: str) -> Iterator[tuple[str, Trace]]:
    """Yield the scenarios that an engine can run, by name."""
    capabilities, package = target_kind(engine).capabilities, target_kind(engine).package
    names = [name for name in known_engines() if target_kind(name).package == package]
    for file in find_scenarios([ROOT / "scenarios" / name for name in names if (ROOT / "scenarios" / name).is_dir()]):
        trace = load(file)
        if lacking(trace, capabilities) is None:
            yield file.stem, trace.explicit()


def tried(task: Task, traces_max: int | None = None) -> Result:
    """Run the traces of a task on the edited engine until a new finding or the end of its time."""
    every = drawn(task.engine, task.seed) if task.source == "drawn" else scenarios(task.engine)
    found, refused, num_traces = None, "", 0
    with edited_engine(task.edits, task.engine, task.sources) as engine:
        for name, trace in islice(every, traces_max):
            if engine.seconds() > 60 * task.minutes:
                break
            num_traces += 1
            try:
                found = engine.found(name, trace)
            except DeviceError as error:
                refused = str(error)
            if found is not None or refused:
                break
        return Result(
            key=task.key,
            id=task.id,
            engine=task.engine,
            source=task.source,
            traces=num_traces,
            seconds=round(engine.seconds(), 1),
            found=found,
            passed=engine.num_passed,
            refused=refused,
        )


@contextmanager
def edited_engine(edits: tuple[Edit, ...], engine: str, sources: str = "") -> Iterator["EditedEngine"]:
    """Start an engine with edited sources, and end its processes at the end of the block.

    `sources` are a release's, in the place of the installed ones; "" for none.
    """
    with tempfile.TemporaryDirectory(prefix="reversals-") as folder:
        if sources:
            package = target_kind(engine).package
            shutil.copytree(Path(sources, package), Path(folder, package), ignore=_COMPILED)
        path = str(overlay(edits, Path(sources) if sources else installed(engine), Path(folder)))
        started = EditedEngine(edits, RunConfig(engine=engine, engine_path=path, fixes=ALL), sources)
        try:
            yield started
        finally:
            started.stop()


class EditedEngine:
    """A running edited engine, the unedited one, and their CPU time.

    `num_passed` counts findings that the release gives too, or that were not confirmed.
    """

    def __init__(self, edits: tuple[Edit, ...], config: RunConfig, sources: str = "") -> None:
        self._edits, self._config, self.num_passed = edits, config, 0
        # A fix that does not match the edited sources is not applied to the clean engine either.
        fixes = ",".join(target_kind(config.engine).fixed(config).names)
        self._clean = RunConfig(engine=config.engine, engine_path=sources, fixes=fixes)
        self._keepers = tuple(_keepers(config))
        self._value_cache = ModelValueCache()
        self._clock = _ProcessorClock(self._keepers)

    def stop(self) -> None:
        """End the processes of the edited engine."""
        for keeper in self._keepers:
            keeper.stop()

    def seconds(self) -> float:
        """Return the CPU seconds so far, without runs of the unedited engine."""
        return self._clock.seconds()

    def finds(self, trace: Trace) -> bool:
        """Return whether a trace has a finding that the release does not give on the same trace."""
        return self._finding(trace) is not None

    def found(self, name: str, trace: Trace) -> Found | None:
        """Return a trace's finding with its source locations, if the release does not give it."""
        finding = self._finding(trace)
        if finding is None:
            return None
        signature, verdict, last = finding
        sites = tuple(dict.fromkeys(_sites(self._clock.without(lambda: self._explained(last, verdict)))))
        named = tuple(f"{site.function} ({site.file})" for site in sites)
        near = nearness(sites, self._edits)
        return Found(bug=signature.bug, plane=_plane(signature), sites=named, nearness=near, trace=name)

    def _finding(self, trace: Trace) -> tuple[Signature, Verdict, Trace] | None:
        try:
            _, verdicts, last = judged_by_sample(trace, self._value_cache, self._config)
        except Unconfirmed:
            self.num_passed += 1
            return None
        signature = signature_of(verdicts[-1], last)
        if signature is None:
            return None
        if self._clock.without(lambda: signature.bug in self._shown_by_release(trace)):
            self.num_passed += 1
            return None
        return signature, verdicts[-1], last

    def _explained(self, trace: Trace, verdict: Verdict) -> Verdict:
        """Return a finding with the explanations that a user would get."""
        try:
            return explain_finding(verdict, trace, self._value_cache, self._config)
        except Unconfirmed:
            return verdict

    def _shown_by_release(self, trace: Trace) -> set[str]:
        try:
            _, verdicts, last = judged_in_full(trace, self._value_cache, self._clean)
        except Unconfirmed:
            return set()
        signature = signature_of(verdicts[-1], last)
        return {signature.bug} if signature is not None else set()


def nearness(sites: Sequence[Site], edits: Sequence[Edit]) -> Nearness:
    """Return how near a finding's source locations are to the edited functions."""
    if not sites:
        return "nowhere"
    near = [edit for site in sites for edit in edits if site.file and f"/{edit.file}".endswith(f"/{site.file}")]
    functions = {site.function.rpartition(".")[2] for site in sites}
    if any(edit.function.rpartition(".")[2] in functions for edit in near):
        return "function"
    return "file" if near else "elsewhere"


def _plane(signature: Signature) -> str:
    return "races" if signature.lanes else signature.plane


def _sites(value: object) -> Iterator[Site]:
    """Yield the source locations that a verdict names, in the order of its fields."""
    if isinstance(value, Site):
        if value.file:
            yield value
    elif isinstance(value, Value):
        for name in type(value).model_fields:
            yield from _sites(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _sites(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from _sites(each)


def _keepers(config: RunConfig) -> Iterator[Keeper]:
    """Yield the managers of the engine process and of its confirming process, if any."""
    kind = target_kind(config.engine)
    assert isinstance(kind, ChildKind), "reversals need an engine in a separate process"
    yield kind.keeper(config)
    confirmation = kind.confirmation(config)
    if confirmation is not None:
        yield from _keepers(confirmation.config)


@dataclass(slots=True)
class _ProcessorClock:
    """CPU seconds since creation: of this process, its children and an engine's processes."""

    keepers: tuple[Keeper, ...]
    _left_out: float = 0.0
    _begin: float = 0.0

    def __post_init__(self) -> None:
        self._begin = self._now()

    def seconds(self) -> float:
        """Return the CPU seconds spent, without excluded work."""
        return self._now() - self._begin - self._left_out

    def without(self, work: Callable[[], T]) -> T:
        """Call a function without counting its CPU time, and return its result."""
        before = self._now()
        try:
            return work()
        finally:
            self._left_out += self._now() - before

    def _now(self) -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (
            time.process_time()
            + ended.ru_utime
            + ended.ru_stime
            + sum(_seconds_of(keeper.pid) for keeper in self.keepers)
        )


def _seconds_of(pid: int | None) -> float:
    """Return the CPU time of a live process; 0 if it has ended.

    RUSAGE_CHILDREN counts the time of an ended process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii") if pid is not None else ""
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
