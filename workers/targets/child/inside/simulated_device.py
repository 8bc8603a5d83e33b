"""Simulated device around an engine: made known to vLLM before anything of it is loaded, and begun for each trace."""

from collections import deque
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from scenarios.events import Schedule
from workers.targets.child.messages import Message
from workers.targets.simulated_torch.device import Watching, activate, cuda_names
from workers.targets.simulated_torch.digests import TaskDigests
from workers.targets.simulated_torch.reports import Access, Race, Report

# Kernels for a CPU that are registered for every device: they would run at once.
_OPS = (
    "compute_slot_mapping_kernel_impl",
    "copy_and_expand_eagle_inputs_kernel_impl",
    "eagle_prepare_inputs_padded_kernel_impl",
    "eagle_prepare_next_token_padded_kernel_impl",
    "eagle_step_slot_mapping_metadata_kernel_impl",
    "expand_kernel_impl",
    "rejection_greedy_sample_kernel_impl",
    "rejection_random_sample_kernel_impl",
    "sample_recovered_tokens_kernel_impl",
)
# Objects are looked into as far as this below the runner.
_DEPTH_MAX = 5
# More than an engine ever has enqueued.
_TASKS_MAX = 100_000
# What fresh memory of the device holds: what is read before it is written is the same in every process.
_FILL = 0xA5
# Lists of tensors are named as far as this.
_ITEMS_MAX = 8
# Buffers that are used in turn: in which one a trace begins depends on what the engine did before.
_POOL = "._uva_bufs"


class SimulatedDevice:
    """The device of this process, under vLLM, whose sources may lie in a folder of their own."""

    def __init__(self, sources: Path | None = None) -> None:
        self._device = activate()
        if sources is not None:
            self._device.root = sources
        self._broken_off: Message = {}
        self._report = self._device.report()
        # For good: the names that vLLM asks a GPU by.
        self._names = cuda_names()
        self._names.__enter__()
        platforms: Any = import_module("vllm.platforms")
        platform = import_module("workers.targets.vllm.inside.platform").SimulatedPlatform
        platforms._current_platform = platform()
        platform.import_kernels()
        for op in _OPS:
            self._device.queue_op("_C", op)

    def idle(self) -> None:
        """Let everything run, and watch nothing: an engine is being made."""
        self._broken_off = {}
        self._device.begin(Schedule(), Watching(races=False, guard=False))

    def begin(self, engine: Any, schedule: Schedule, races: bool, digests: bool = False) -> None:
        """Begin a trace on an engine under a schedule, and name the engine's memory."""
        self._device.begin(schedule, Watching(races=races, guard=races, digests=digests, fill=_FILL))
        runner = engine.model_executor.driver_worker.worker.model_runner
        named = list(_named(runner, "runner"))
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
        """Label what is launched from here on."""
        self._device.step(tick)

    def abandon(self) -> None:
        """Run what an engine that broke off has left, though of that more may break off; keep the report of before."""
        self._report = self._device.report()
        self._broken_off = _all_told(self._report)
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
        return self._broken_off or _all_told(self._report)

    def race(self, number: int) -> Race:
        """Return a race of the last report."""
        return self._report.races[number]

    def digests(self) -> Sequence[TaskDigests]:
        """Let everything run, and return what each task of the trace read and wrote."""
        return self._device.digests()


def _all_told(report: Report) -> Message:
    return {"races": [_told(race) for race in report.races], "counts": dict(report.counts)}


def _named(holder: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield tensors and streams among the attributes of an object, and of what it holds of vLLM's own objects.

    What has several names comes by its shortest first.
    """
    seen, waiting = {id(holder)}, deque([(path, holder, 0)])
    while waiting:
        path, holder, depth = waiting.popleft()
        for name, value in vars(holder).items():
            for where, item in _items(value, f"{path}.{name}"):
                if isinstance(item, torch.Tensor | torch.Stream):
                    yield where, item
                elif depth < _DEPTH_MAX and id(item) not in seen and _is_own(item):
                    seen.add(id(item))
                    waiting.append((where, item, depth + 1))


def _items(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the first items of a list."""
    if isinstance(value, list):
        is_pool = where.endswith(_POOL)
        yield from ((where if is_pool else f"{where}[{index}]", item) for index, item in enumerate(value[:_ITEMS_MAX]))
    else:
        yield where, value


def _is_own(value: Any) -> bool:
    return type(value).__module__.startswith("vllm.v1.") and hasattr(value, "__dict__")


def _told(race: Race) -> Message:
    """Return a race as it is told: who, where, of what memory."""
    memory = race.buffer if race.reused_as is None else f"{race.buffer}, handed out again as {race.reused_as}"
    return {"memory": memory, "count": race.count, "first": _access(race.first), "second": _access(race.second)}


def _access(access: Access) -> Message:
    line = access.lines[0] if access.lines else None
    return {
        "who": access.actor,
        "how": "write" if access.write else "read",
        "op": access.op if access.actor != "host" else "host",
        "step": access.step,
        "function": line.function.rpartition(".")[2] if line else "nobody",
        "where": f"{line.file}:{line.line}" if line else "",
    }
