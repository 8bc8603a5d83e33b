"""Schedules on a GPU: where the trace makes a stream busy-wait or the host sleep.

A delay names a source line of the engine and whether to wait before or after it; optionally also the lines that called
it, and one step. It can, for example, make the copy of a step's output tokens arrive late at the scheduler. The policy
delays kernel launches: under `lazy` each launch waits on its stream, under `random` the launch and the host wait for
times derived from the seed. With `joined`, the host synchronises with the device after each launch, so that no order
between streams can be missing.

In an engine with several ranks each process delays itself: under `lazy` a further rank waits longer, under `random` for
times of its own. On a CPU, which has no streams, the host waits instead.

Verifies: nothing; the caller that drives the engine judges its results.

Does not verify: that a delay causes the intended order; it only waits for a fixed time.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.draw import words
from scenarios.events import Delay, Schedule
from workers.targets.child.messages import Message

# A lazy launch waits for longer than the host needs for the next launch. A random one, and the host, wait for at most
# RANDOM_MICROSECONDS.
LAZY_MICROSECONDS = 60
RANDOM_MICROSECONDS = 120
HOST_SHARE = 4
_CYCLES = 2_000_000
# Any, because its functions have no types.
cuda: Any = torch.cuda


@cache
def cycles_per_microsecond() -> float:
    """Return how many cycles of `torch.cuda._sleep` take a microsecond, measured once."""
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda._sleep(_CYCLES)
    start.record()
    cuda._sleep(_CYCLES)
    end.record()
    end.synchronize()
    return _CYCLES / (1000 * float(start.elapsed_time(end)))


def spin(microseconds: float) -> None:
    """Enqueue a busy wait (microseconds) on the current stream; on a CPU, wait for that time."""
    if not cuda.is_available():
        time.sleep(microseconds / 1e6)
        return
    cuda._sleep(int(microseconds * cycles_per_microsecond()))


class Gpu:
    """The GPU of this process: adds the delays that a trace specifies; detects no races.

    `rank` is the number of this process, if the ranks of its engine are processes.
    """

    def __init__(self, rank: int = 0) -> None:
        self._rank = rank
        self._open = ExitStack()
        self._delaying: list[DelayedLines | _Launches] = []

    def idle(self) -> None:
        """Add no delays from now on, e.g. while an engine is created."""
        self._open.close()
        self._delaying = []

    def begin(
        self, memory: Mapping[str, object], schedule: Schedule, *, races: bool, digests: bool, writers: bool
    ) -> None:
        """Begin a trace: start the delays of its schedule.

        The other arguments are for the simulated device only: a GPU reports no races, digests or writers.
        """
        self.idle()
        own = [delay for delay in schedule.delays if delay.rank in (None, self._rank)]
        if own:
            spin(1)
            self._delaying.append(self._open.enter_context(DelayedLines(own)))
        if schedule.policy != "eager" or schedule.joined:
            self._delaying.append(self._open.enter_context(_Launches(schedule, self._rank)))

    def step(self, tick: int) -> None:
        for each in self._delaying:
            each.step = tick

    def abandon(self) -> None:
        """Stop all delays after the engine has failed."""
        self.idle()

    def report(self) -> Message:
        """Return how often the trace delayed the host, a stream or a launch."""
        counts = sum((each.counts for each in self._delaying), Counter[str]())
        return {"races": [], "counts": dict(counts)}


class DelayedLines:
    """Context in which the host or a stream pauses at the source lines that a trace delays.

    `step` is the number of the current step; `counts` counts the delays of streams and of the host.
    """

    def __init__(self, delays: Sequence[Delay]) -> None:
        self.step = -1
        self.counts = Counter[str]()
        self._delays = delays
        self._files = tuple(f"/{each.at[0].rpartition(':')[0]}" for each in delays)
        self._of_code: dict[CodeType, Mapping[int, Sequence[Delay]]] = {}
        self._before: Any = None

    def __enter__(self) -> "DelayedLines":
        self._before = sys.gettrace()
        sys.settrace(self._line_tracer)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def pause(self, delay: Delay) -> None:
        self.counts[f"delayed_{delay.of}"] += 1
        if delay.of == "host":
            time.sleep(delay.microseconds / 1e6)
        else:
            spin(delay.microseconds)

    def _line_tracer(self, frame: FrameType, event: str, _: object) -> Any:
        """Return a line tracer if the called function contains a delayed line, else None."""
        code = frame.f_code
        found = self._of_code.get(code)
        if found is None:
            found = self._of_code[code] = self._lines_of(code)
        return _Lines(self, found) if found else None

    def _lines_of(self, code: CodeType) -> Mapping[int, Sequence[Delay]]:
        if not code.co_filename.endswith(self._files):
            return {}
        own = {line for _, _, line in code.co_lines() if line is not None}
        found: dict[int, list[Delay]] = {}
        for delay in self._delays:
            file, _, line = delay.at[0].rpartition(":")
            if code.co_filename.endswith(f"/{file}") and int(line) in own:
                found.setdefault(int(line), []).append(delay)
        return found

    def matching(self, delays: Iterable[Delay], where: str, frame: FrameType) -> Iterable[Delay]:
        """Return the delays of a source line that apply in this step and to this call stack."""
        return [
            each
            for each in delays
            if each.where == where and each.step in (None, self.step) and _is_called_from(frame, each.at[1:])
        ]


class _Lines:
    """Line tracer of one function call: pauses before or after the delayed source lines."""

    def __init__(self, context: DelayedLines, delays: Mapping[int, Sequence[Delay]]) -> None:
        self._context, self._delays = context, delays
        self._after: Iterable[Delay] = ()

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if event not in ("line", "return"):
            return self
        for delay in self._after:
            self._context.pause(delay)
        self._after = ()
        delays = self._delays.get(frame.f_lineno, ()) if event == "line" else ()
        if delays:
            for delay in self._context.matching(delays, "before", frame):
                self._context.pause(delay)
            self._after = self._context.matching(delays, "behind", frame)
        return self


def _is_called_from(frame: FrameType, lines: Sequence[str]) -> bool:
    """Return whether the callers of a frame are at the given lines, nearest first.

    Other functions may be between them on the stack.
    """
    above = frame.f_back
    for each in lines:
        file, _, line = each.rpartition(":")
        while above is not None and not (above.f_lineno == int(line) and above.f_code.co_filename.endswith(f"/{file}")):
            above = above.f_back
        if above is None:
            return False
        above = above.f_back
    return True


class _Launches(TorchDispatchMode):
    """Context that delays each PyTorch or Triton launch, or waits until it has run."""

    def __init__(self, schedule: Schedule, rank: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step = -1
        self.counts = Counter[str]()
        self._schedule, self._rank = schedule, rank
        # Number of launches so far, by step.
        self._launched = Counter[int]()

    def __enter__(self) -> "_Launches":
        if cuda.is_available():
            from triton import knobs  # noqa: PLC0415  a process without it has no GPU

            knobs.runtime.launch_enter_hook.add(self._before_kernel)
            knobs.runtime.launch_exit_hook.add(self._after_kernel)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if cuda.is_available():
            from triton import knobs  # noqa: PLC0415  a process without it has no GPU

            knobs.runtime.launch_enter_hook.remove(self._before_kernel)
            knobs.runtime.launch_exit_hook.remove(self._after_kernel)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_launch = not func.is_view and (_is_of_a_gpu(args, kwargs) or not cuda.is_available())
        if is_launch:
            self._before(str(func))
        returned = func(*args, **kwargs)
        if is_launch:
            self._after()
        return returned

    def _before_kernel(self, metadata: Any) -> None:
        self._before("kernel")

    def _after_kernel(self, metadata: Any) -> None:
        self._after()

    def _before(self, op: str) -> None:
        self.counts["delayed_launches"] += 1
        self._launched[self.step] += 1
        match self._schedule.policy:
            case "lazy":
                spin(LAZY_MICROSECONDS * (1 + self._rank))
            case "random":
                key = f"rank {self._rank}: {self.step}" if self._rank else str(self.step)
                stream, host, *_ = words(self._schedule.seed, op, key, self._launched[self.step])
                time.sleep((host * RANDOM_MICROSECONDS >> 32) / HOST_SHARE / 1e6)
                spin(stream * RANDOM_MICROSECONDS >> 32)
            case _:
                pass

    def _after(self) -> None:
        if self._schedule.joined and cuda.is_available():
            cuda.synchronize()


def _is_of_a_gpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operator has arguments on a GPU."""
    tensors = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
    return any(each.is_cuda for each in tensors) or torch.device(kwargs.get("device") or "cpu").type == "cuda"
