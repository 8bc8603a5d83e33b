"""Ranks as vLLM's own worker processes: engine arguments, and delays in these processes.

vLLM's multiprocess executor, its worker processes and their collectives (NCCL, or gloo on a CPU) are unmodified. A
worker process starts by importing this process's main module, which loads the same sources, fixes and replacements.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.inside.gpu import Gpu
from workers.targets.child.inside.host import failure
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.rank_processes.failures import recorded_failure
from workers.targets.vllm.inside.rank_processes.worker import EXTENSION

# Seconds in which all ranks must answer a call at the beginning or the end of a trace.
_CALL_SECONDS = 60.0


def are_processes(engine: Any) -> bool:
    """Return whether the ranks of an engine are worker processes, so its model runners are not in this process."""
    return hasattr(getattr(engine, "model_executor", None), "workers")


class RankProcesses:
    """Delays of this process, and of the worker processes of its current engine; `gpu` is None on a CPU."""

    hosts = None

    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu
        # The executor of the current trace's engine, if its ranks are processes.
        self._executor: Any = None
        self._is_begun = False
        # Whether this process has ever started a worker process.
        self._had_processes = False

    def prepare(self) -> None:
        """Do nothing: each process has module variables of its own."""

    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments of an engine with several ranks, except their numbers."""
        self._had_processes = True
        # All collectives are NCCL's or gloo's.
        return {
            "distributed_executor_backend": "mp",
            "disable_custom_all_reduce": True,
            "worker_extension_cls": EXTENSION,
        }

    def check(self, spec: EngineSpec) -> None:
        """Do nothing: no rank shares module variables."""

    def use(self, engine: Any) -> None:
        """Set the engine of the next trace."""
        self._executor, self._is_begun = engine.model_executor if are_processes(engine) else None, False

    def end(self, engine: Any) -> None:
        """End an engine's worker processes, if it has any."""
        if are_processes(engine):
            engine.model_executor.shutdown()

    def failure(self, error: BaseException) -> Message:
        """Return the answer for an exception: a rank's own if one has recorded it.

        Once there were worker processes, it is the last answer: the end of this process also ends those that hang.
        """
        if not self._had_processes:
            return failure(error)
        return {**(recorded_failure() or failure(error)), "is_last": True}

    def idle(self) -> None:
        """Stop the delays of this process, e.g. while an engine is created."""
        if self._gpu is not None:
            self._gpu.idle()

    def abandon(self) -> None:
        """Stop the delays of this process after the engine has failed."""
        self.idle()

    def begin(
        self, memory: Mapping[str, object], schedule: Schedule, *, races: bool, digests: bool, writers: bool
    ) -> None:
        """Begin a trace: start the delays of its schedule where the model runner is."""
        if self._executor is not None:
            self._is_begun = True
            self._executor.collective_rpc("specstorm_begin", args=(schedule.model_dump_json(),), timeout=_CALL_SECONDS)
        elif self._gpu is not None:
            self._gpu.begin(memory, schedule, races=races, digests=digests, writers=writers)

    def step(self, tick: int) -> None:
        """Set the number of the next step, in all processes.

        Only the rank that returns the outputs replies: otherwise each step would wait for the other ranks.
        """
        if self._executor is not None:
            self._executor.collective_rpc(
                "specstorm_step", args=(tick,), non_block=True, unique_reply_rank=self._executor.output_rank
            )
        elif self._gpu is not None:
            self._gpu.step(tick)

    def report(self) -> Message:
        """Return how often the trace delayed the host, a stream or a launch, in all ranks together."""
        if self._executor is not None:
            counts: Counter[str] = Counter()
            if self._is_begun:
                self._is_begun = False
                for each in self._executor.collective_rpc("specstorm_end", timeout=_CALL_SECONDS):
                    counts.update(each)
            return {"races": [], "counts": dict(counts)}
        return self._gpu.report() if self._gpu is not None else {"races": [], "counts": {}}
