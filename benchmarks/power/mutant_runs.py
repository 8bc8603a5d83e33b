"""Run random traces on a mutated engine, in a forked process that is killed if it hangs.

The process that forks has loaded scenarios, oracle and judges, but not the engine: each fork loads the engine itself,
and the mutated module from its changed syntax tree, so that all imports get the mutant. No file is written, and nothing
of the mutant remains after the fork has ended.
"""

import ast
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Generic, TypeVar

from benchmarks.power.line_coverage import ROOT, Watch
from benchmarks.power.mutants import mutated
from scenarios.generation.shards import TRACES_PER_SHARD, Shard
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Diverged, Lost, Stuck, Vacuous, Verdict
from workers.record.words import reason_text
from workers.run.check import check

# CPU seconds that a trace may take; the longest trace takes a tenth.
CPU_SECONDS_MAX = 10
MEMORY_MAX = 2 << 30
DETAIL_MAX = 160
ENGINE = "workers.targets.specstorm"
JUDGED = ("workers.engine", "workers.kernels", "workers.faults")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """How a fork ended: by returning a value, or by a signal."""

    value: T | None
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Clean:
    """Results of a trace on the unmutated engine: executed lines, observations, probe counts."""

    lines: dict[str, frozenset[int]]
    captured: tuple[object, ...]
    probes: dict[str, int]
    verdict: str


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant to run: file, index of the change in it, and the numbers of the traces."""

    key: str
    file: str
    index: int
    traces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a mutant: survived, or what killed it and in which trace, counted from 0.

    `how` is a kind of verdict, "unloadable", "timeout" or "died"; `changed` says what differed from the engine without
    faults in a survivor's traces: captures, only probes, or nothing.
    """

    key: str
    how: str
    trace: int = -1
    detail: str = ""
    changed: str = ""

    @property
    def survived(self) -> bool:
        """Return whether no trace distinguished the mutant from the engine without faults."""
        return self.how == "survived"


class _Changed(SourceFileLoader):
    """A module loader that returns the compiled code of the mutated module."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the mutated module."""
        return self._code


class _Finder:
    """An import finder that answers for the mutated module only."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self.name = name
        self._loader = _Changed(name, str(path), compile(tree, str(path), "exec"))

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the import spec of the mutated module; None for any other module."""
        if name != self.name:
            return None
        return spec_from_file_location(name, self._loader.path, loader=self._loader)


def change_module(file: str, tree: ast.Module, root: Path = ROOT) -> None:
    """Install an import finder that loads a module from a mutated syntax tree.

    Raises:
        RuntimeError: the process has already loaded the module.
    """
    name = file.removesuffix(".py").replace("/", ".")
    if name in sys.modules:
        raise RuntimeError(f"{file} is already loaded with the judges; a change of it would have no effect")
    sys.meta_path.insert(0, _Finder(name, root / file, tree))


def in_fork(function: Callable[[], T], cpu_seconds: int = CPU_SECONDS_MAX) -> Ended[T]:
    """Call a function in a fork of this process, with limits on its memory and CPU time.

    The function may restart the time limit by calling `begin_time`.
    """
    receiver, sender = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _in_child(function, sender, cpu_seconds)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Ended(None, os.WTERMSIG(status))
    assert os.WEXITSTATUS(status) == 0, f"a fork that returns nothing ends by a signal, not with {status}"
    return Ended(pickle.loads(content))


def _in_child(function: Callable[[], object], sender: int, cpu_seconds: int) -> None:
    """Call a function, write its result to the pipe, and end the process."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_MAX, used + MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        begin_time(cpu_seconds)
        content = pickle.dumps(function())
        signal.setitimer(signal.ITIMER_PROF, 0)
        with os.fdopen(sender, "wb") as pipe:
            pipe.write(content)
    except BaseException:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def begin_time(cpu_seconds: int = CPU_SECONDS_MAX) -> None:
    """Set a timer that ends this process after `cpu_seconds` of CPU time from now on."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


def traces_from(first: int, count: int) -> Iterator[Trace]:
    """Yield hunt traces number `first` to `first + count - 1`, with expanded prompts."""
    for number in range(first // TRACES_PER_SHARD, -(-(first + count) // TRACES_PER_SHARD)):
        for index, trace in enumerate(Shard(profile="mixed", seed=0, number=number).generate()):
            if first <= number * TRACES_PER_SHARD + index < first + count:
                yield trace.explicit()


def run_clean(files: Sequence[str], traces: Sequence[Trace]) -> list[Clean]:
    """Return the results of traces on the unmutated engine; called in a fork."""
    import_module(ENGINE)
    value_cache, found = ModelValueCache(), []
    paths = [ROOT / file for file in files]
    for trace in traces:
        begin_time()
        forget_tables()
        with Watch(paths) as watch:
            verdict = check(trace, value_cache)
        lines = {file: frozenset(watch.seen[str(path)]) for file, path in zip(files, paths, strict=True)}
        captured, probes = _seen_in(verdict)
        found.append(Clean(lines, captured, probes, verdict.kind))
    return found


def forget_tables() -> None:
    """Clear the caches of the mutated packages, so that their tables are computed again.

    The lines that compute them then count as executed.
    """
    for name in [name for name in sys.modules if name.startswith(JUDGED)]:
        for each in vars(sys.modules[name]).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()


def _seen_in(verdict: Verdict) -> tuple[tuple[object, ...], dict[str, int]]:
    assert not isinstance(verdict, Lost), "a trace that ran has a verdict"
    stats = verdict.stats
    return (stats.requests, stats.steps, stats.commits, stats.captures, stats.digest, stats.planes), stats.probes


def _killed_by(verdict: Verdict) -> str:
    """Return the finding that a mutant causes as one line of text."""
    match verdict:
        case Diverged(difference=difference):
            return f"{difference.plane}: {difference.variable}"
        case Crashed(error=error):
            return error
        case Stuck():
            return reason_text(verdict)
    raise AssertionError(f"{verdict.kind} is not a finding")


class Runner:
    """Forks a process for each mutant, and compares its traces with the unmutated results."""

    def __init__(self, traces: Sequence[Trace], clean: Sequence[Clean]) -> None:
        loaded = [name for name in sys.modules if name.startswith(JUDGED)]
        assert not loaded, f"a process that forks for mutants has loaded mutated packages: {loaded[:3]}"
        self._traces = traces
        self._clean = clean

    def outcome(self, task: Task) -> Outcome:
        """Run a mutant in a fork and return its outcome."""
        source = (ROOT / task.file).read_text(encoding="utf-8")
        tree = mutated(source, task.index)
        ended = in_fork(lambda: self._in_fork(task, tree))
        if ended.value is not None:
            return ended.value
        if ended.signal == signal.SIGPROF:
            return Outcome(task.key, "timeout", detail=f"{CPU_SECONDS_MAX} s of CPU time in one trace")
        return Outcome(task.key, "died", detail=signal.Signals(ended.signal).name)

    def _in_fork(self, task: Task, tree: ast.Module) -> Outcome:
        change_module(task.file, tree)
        try:
            import_module(ENGINE)
        except Exception as error:
            return Outcome(task.key, "unloadable", detail=f"{type(error).__name__}: {error}"[:DETAIL_MAX])
        value_cache, changed = ModelValueCache(), "nothing"
        for number in task.traces:
            begin_time()
            verdict = check(self._traces[number], value_cache)
            if not isinstance(verdict, Agreed | Vacuous):
                return Outcome(task.key, verdict.kind, number, " ".join(_killed_by(verdict).split())[:DETAIL_MAX])
            captured, probes = _seen_in(verdict)
            clean = self._clean[number]
            if captured != clean.captured:
                changed = "captures"
            elif probes != clean.probes and changed == "nothing":
                changed = "probes"
        return Outcome(task.key, "survived", changed=changed)
