"""Simulated device of an engine's process: activated before the engine's import."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from scenarios.events import Schedule
from workers.simulated_torch.device import Watching, activate, cuda_names
from workers.simulated_torch.digests import TaskDigests, harm_of
from workers.simulated_torch.reports import Access, Race, Report, SourceLine
from workers.targets.child.inside import layers
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.messages import Message

# How deep attributes are searched below the objects that a session names.
_DEPTH_MAX = 5
# Initial bytes of device memory: uninitialised reads return the same values in every process.
_FILL = 0xA5
# Prefix of this project's files; reports name the files of an installed engine relative to its package.
_OWN = "workers/"
# Only this many items of a list of tensors are named.
_ITEMS_MAX = 8


class SimulatedDevice:
    """Simulated device of this process: queues operators as tasks, and detects races.

    Reports name memory by attribute paths, e.g. of a block table in the model runner. A path starts at an object that
    the session names and follows attributes of objects with classes in modules with a prefix in `own`. All items of a
    list named in `pools` share one name: such buffers are used in turn, and the buffer that a trace starts with depends
    on earlier traces. Lines of overlay `sources` are named like lines of the installed files, because known bugs
    identify races by these names. Reports skip lines in the folder `stand_in`, which replaces functions of the engine.
    They also skip lines in `launchers`, folders of code that launches kernels, and in the layers that are one task
    each. Instead, they name the lines that call the skipped ones.
    """

    def __init__(
        self,
        own: tuple[str, ...],
        pools: tuple[str, ...] = (),
        sources: Path | None = None,
        stand_in: str = "",
        launchers: Sequence[Path] = (),
    ) -> None:
        self._device = activate()
        self._device.pass_over((*launchers, Path(layers.__file__)))
        if sources is not None:
            self._device.root = sources
        self._passed_over = (stand_in,) if stand_in else ()
        self._own, self._pools = own, tuple(f".{name}" for name in pools)
        self._report_before_failure: Message = {}
        self._report = self._device.report()
        # Threads of several ranks, once an engine has some.
        self.hosts: Hosts | None = None
        # Never undone: `torch.cuda` is the simulated device from now on.
        self._names = cuda_names()
        self._names.__enter__()

    def queue_ops(self, library: str, names: Iterable[str]) -> None:
        """Queue calls of these operators as device tasks; each has one kernel for all devices."""
        for name in names:
            self._device.queue_op(library, name)

    def weak_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor over the same memory that does not keep the memory alive."""
        return self._device.weak_view(tensor)

    def idle(self) -> None:
        """Run all queued tasks; detect no races until `begin`, e.g. while an engine is created."""
        self._report_before_failure = {}
        if self.hosts is not None:
            self.hosts.begin(Schedule())
        self._device.begin(Schedule(), Watching(races=False, guard=False))

    def begin(
        self, memory: Mapping[str, object], schedule: Schedule, *, races: bool, digests: bool, writers: bool
    ) -> None:
        """Begin a trace under a schedule; name the tensors and streams in `memory`.

        With `writers`, the device keeps the last writers of all memory.
        """
        watching = Watching(races=races, guard=races, digests=digests, writers=writers, fill=_FILL)
        if self.hosts is not None:
            self.hosts.begin(schedule)
        self._device.begin(schedule, watching)
        named = [each for name, holder in memory.items() for each in self._tensors_and_streams(holder, name)]
        for name, value in named:
            if isinstance(value, torch.Stream):
                rank, _, path = name.rpartition(": ")
                self._device.name_stream(value, f"{rank} {path.rpartition('.')[2]}".strip())
        # Host buffers are named before device tensors: a device view of pinned memory may be of any of several buffers.
        known: set[int] = set()
        for is_host in (True, False):
            for name, value in named:
                if isinstance(value, torch.Tensor) and (value.device.type == "cpu") == is_host:
                    self._name(value, name, known)

    def _name(self, tensor: torch.Tensor, name: str, known: set[int]) -> None:
        """Name the memory of a device or pinned tensor, unless it has a name."""
        memory = tensor.untyped_storage().data_ptr()
        if tensor.numel() and memory not in known and (tensor.device.type != "cpu" or tensor.is_pinned()):
            known.add(memory)
            self._device.name(tensor, name)

    def step(self, tick: int) -> None:
        self._device.step(tick)

    def abandon(self) -> None:
        """Save the report of a failed engine's trace, and discard the queued tasks."""
        self._report = self._device.report()
        self._report_before_failure = _report_message(self._report, self._passed_over)
        self._device.drop()

    def report(self) -> Message:
        """Run all enqueued tasks; return the races of the trace and the device's counters."""
        if not self._report_before_failure:
            self._report = self._device.end()
        return self._report_before_failure or _report_message(self._report, self._passed_over)

    def race(self, number: int) -> Race:
        return self._report.races[number]

    def harm(self, race: Race, eager: Sequence[TaskDigests], lazy: Sequence[TaskDigests]) -> Message:
        """Compare an eager and a lazy run; return whether a race changes results."""
        found = harm_of(race, eager, lazy)
        first, given = found.first, found.given
        return {
            "kind": found.kind,
            "task": _task(first.task, self._passed_over) if first is not None else None,
            "what": first.what if first is not None else "",
            "given": _task(given, self._passed_over) if given is not None else None,
        }

    def digests(self) -> Sequence[TaskDigests]:
        """Run all queued tasks; return hashes of each task's reads and writes."""
        return self._device.digests()

    def _tensors_and_streams(self, holder: object, path: str) -> Iterator[tuple[str, Any]]:
        """Yield (path, tensor or stream) for the attributes of an object, recursively.

        Attributes of the engine's own objects are searched too, breadth first: if a tensor has several names, the
        shortest one comes first.
        """
        seen, waiting = {id(holder)}, deque([(path, holder, 0)])
        while waiting:
            path, holder, depth = waiting.popleft()
            for name, value in vars(holder).items():
                for where, item in self._items(value, f"{path}.{name}"):
                    if isinstance(item, torch.Tensor | torch.Stream):
                        yield where, item
                    elif depth < _DEPTH_MAX and id(item) not in seen and self._is_own(item):
                        seen.add(id(item))
                        waiting.append((where, item, depth + 1))

    def _items(self, value: Any, where: str) -> Iterator[tuple[str, Any]]:
        """Yield a value with its path; for a list, its first items with theirs."""
        if isinstance(value, list):
            is_pool = where.endswith(self._pools)
            items = enumerate(value[:_ITEMS_MAX])
            yield from ((where if is_pool else f"{where}[{index}]", item) for index, item in items)
        else:
            yield where, value

    def _is_own(self, value: Any) -> bool:
        return type(value).__module__.startswith(self._own) and hasattr(value, "__dict__")


def _report_message(report: Report, passed_over: Sequence[str]) -> Message:
    return {"races": [_race(race, passed_over) for race in report.races], "counts": dict(report.counts)}


def _race(race: Race, passed_over: Sequence[str]) -> Message:
    """Convert a race to evidence: both accesses, the memory, and where it was allocated."""
    first, second = (
        access_message(access, skip_files(access.lines, passed_over)) for access in (race.first, race.second)
    )
    allocated = _site(skip_files(race.allocated, passed_over))
    memory = {"memory": race.buffer, "reused_as": race.reused_as or "", "allocated": allocated}
    return {"order": {**memory, "first": first, "second": second}, "count": race.count}


def access_message(access: Access, lines: Sequence[SourceLine]) -> Message:
    """Convert an access to evidence; the first of `lines` is its source location.

    Of the other lines, those in the engine's files become its callers.
    """
    callers = [line for line in lines[1:] if "/" in line.file and not line.file.startswith(_OWN)]
    return {
        "lane": access.actor,
        "op": access.op if access.actor != "host" else "host",
        "step": access.step,
        "how": "write" if access.write else "read",
        "site": _site(lines) or {"function": "nobody"},
        "callers": [_site([line]) for line in callers],
    }


def _task(task: TaskDigests, passed_over: Sequence[str]) -> Message:
    return {"lane": task.stream, "op": task.op, "step": task.step, "site": _site(skip_files(task.lines, passed_over))}


def skip_files(lines: Sequence[SourceLine], passed_over: Sequence[str]) -> Sequence[SourceLine]:
    """Return a call stack without its innermost lines in the given files.

    Files are given as name prefixes. If every line is in them, return all lines.
    """
    numbers = (number for number, line in enumerate(lines) if not line.file.startswith(tuple(passed_over)))
    return lines[next(numbers, 0) :]


def _site(lines: Sequence[SourceLine]) -> Message | None:
    """Return the innermost line of a call stack as a source location."""
    if not lines:
        return None
    return {"function": lines[0].function.rpartition(".")[2], "file": lines[0].file, "line": lines[0].line}
