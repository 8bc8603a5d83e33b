"""Simulated device under an engine: activated before anything of the engine is loaded, and begun for each trace."""

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
from workers.targets.child.messages import Message

# Objects are looked into as far as this below those that a session names.
_DEPTH_MAX = 5
# More than an engine ever has enqueued.
_TASKS_MAX = 100_000
# What fresh memory of the device holds: what is read before it is written is the same in every process.
_FILL = 0xA5
# Files of this project, which an installed engine has by their names alone.
_OWN = "workers/"
# Lists of tensors are named as far as this.
_ITEMS_MAX = 8


class SimulatedDevice:
    """The device of this process.

    Memory is named by way of the objects that a session names, and of those below whose classes are of `own` modules,
    by prefix. Of lists with a name in `pools`, whose buffers are used in turn, all items have one name: in which of
    them a trace begins depends on what the engine did before. Lines of laid-over `sources` are named as those of
    installed ones: by that, races are known. Lines in a `stand_in`, a folder of what takes the place of the engine's
    own functions, are passed over: the lines that call these are named. So are `launchers`, folders of what launches
    its kernels, and the layers that are one task each.
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
        self._broken_off: Message = {}
        self._report = self._device.report()
        # For good: the names that an engine asks a GPU by.
        self._names = cuda_names()
        self._names.__enter__()

    def queue_ops(self, library: str, names: Iterable[str]) -> None:
        """Make tasks of operators whose kernels for a CPU are registered for every device: they would run at once."""
        for name in names:
            self._device.queue_op(library, name)

    def weak_view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor over the same bytes, which it does not keep."""
        return self._device.weak_view(tensor)

    def idle(self) -> None:
        """Let everything run, and watch nothing: an engine is being made."""
        self._broken_off = {}
        self._device.begin(Schedule(), Watching(races=False, guard=False))

    def begin(
        self, memory: Mapping[str, object], schedule: Schedule, *, races: bool, digests: bool, writers: bool
    ) -> None:
        """Begin a trace under a schedule, and name the memory of objects; with `writers`, keep who wrote last."""
        watching = Watching(races=races, guard=races, digests=digests, writers=writers, fill=_FILL)
        self._device.begin(schedule, watching)
        named = [each for name, holder in memory.items() for each in self._named(holder, name)]
        for name, value in named:
            if isinstance(value, torch.Stream):
                self._device.name_stream(value, name.rpartition(".")[2])
        # A view of pinned memory that the device has may be of any of several buffers in turn: these are named first.
        known: set[int] = set()
        for is_host in (True, False):
            for name, value in named:
                if isinstance(value, torch.Tensor) and (value.device.type == "cpu") == is_host:
                    self._name(value, name, known)

    def _name(self, tensor: torch.Tensor, name: str, known: set[int]) -> None:
        """Name the memory of a tensor, if it is the device's or pinned and has no name yet."""
        memory = tensor.untyped_storage().data_ptr()
        if tensor.numel() and memory not in known and (tensor.device.type != "cpu" or tensor.is_pinned()):
            known.add(memory)
            self._device.name(tensor, name)

    def step(self, tick: int) -> None:
        self._device.step(tick)

    def abandon(self) -> None:
        """Run what an engine that broke off has left, though of that more may break off; keep the report of before."""
        self._report = self._device.report()
        self._broken_off = _shown(self._report, self._passed_over)
        for _ in range(_TASKS_MAX):
            try:
                self._device.end()
            except Exception:
                # Each attempt takes one task away at least.
                continue
            return

    def report(self) -> Message:
        """Let everything run, and return the races of the trace so far, and what the device counted."""
        if not self._broken_off:
            self._report = self._device.end()
        return self._broken_off or _shown(self._report, self._passed_over)

    def race(self, number: int) -> Race:
        return self._report.races[number]

    def harm(self, race: Race, eager: Sequence[TaskDigests], lazy: Sequence[TaskDigests]) -> Message:
        """Return the harm of a race, from what tasks read and wrote under eager and under lazy."""
        found = harm_of(race, eager, lazy)
        first, given = found.first, found.given
        return {
            "kind": found.kind,
            "task": _task(first.task, self._passed_over) if first is not None else None,
            "what": first.what if first is not None else "",
            "given": _task(given, self._passed_over) if given is not None else None,
        }

    def digests(self) -> Sequence[TaskDigests]:
        """Let everything run, and return what each task of the trace read and wrote."""
        return self._device.digests()

    def _named(self, holder: object, path: str) -> Iterator[tuple[str, Any]]:
        """Yield tensors and streams among the attributes of an object, and of what it holds of the engine's own ones.

        What has several names comes by its shortest first.
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
        """Yield a value, or the first items of a list."""
        if isinstance(value, list):
            is_pool = where.endswith(self._pools)
            items = enumerate(value[:_ITEMS_MAX])
            yield from ((where if is_pool else f"{where}[{index}]", item) for index, item in items)
        else:
            yield where, value

    def _is_own(self, value: Any) -> bool:
        return type(value).__module__.startswith(self._own) and hasattr(value, "__dict__")


def _shown(report: Report, passed_over: Sequence[str]) -> Message:
    return {"races": [_race(race, passed_over) for race in report.races], "counts": dict(report.counts)}


def _race(race: Race, passed_over: Sequence[str]) -> Message:
    """Return a race as evidence: who, where, of what memory."""
    first, second = (access_message(access, beyond(access.lines, passed_over)) for access in (race.first, race.second))
    allocated = _site(beyond(race.allocated, passed_over))
    memory = {"memory": race.buffer, "reused_as": race.reused_as or "", "allocated": allocated}
    return {"order": {**memory, "first": first, "second": second}, "count": race.count}


def access_message(access: Access, lines: Sequence[SourceLine]) -> Message:
    """Return an access as evidence has it, made from the first of some lines; of the others the engine's called it."""
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
    return {"lane": task.stream, "op": task.op, "step": task.step, "site": _site(beyond(task.lines, passed_over))}


def beyond(lines: Sequence[SourceLine], passed_over: Sequence[str]) -> Sequence[SourceLine]:
    """Return lines from the innermost that is in none of some files, named by prefix, or all of them if each is."""
    numbers = (number for number, line in enumerate(lines) if not line.file.startswith(tuple(passed_over)))
    return lines[next(numbers, 0) :]


def _site(lines: Sequence[SourceLine]) -> Message | None:
    """Return the innermost line; of a nested function its own name."""
    if not lines:
        return None
    return {"function": lines[0].function.rpartition(".")[2], "file": lines[0].file, "line": lines[0].line}
