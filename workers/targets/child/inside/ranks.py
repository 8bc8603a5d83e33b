"""Host threads of several ranks in one process; one of them runs at a time.

In production each rank is a process. Here each rank has threads of this process, which hand the right to run to each
other where a process would wait: for a message, for a collective of CPU tensors, for device work of another rank.
Which thread runs next follows from the trace's schedule alone, so a run can be repeated. If no thread can go on, the
ranks are stuck: the error says who waits for what, and where.
"""

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch

from scenarios.draw import below
from scenarios.events import Schedule
from workers.simulated_torch.process_group import line_in

# Files of this project and of libraries: a thread waits in the innermost line outside of them.
_SKIPPED = (f"{Path(__file__).resolve().parents[3]}/", "/torch/", "/threading.py", "/queue.py")


class Stuck(RuntimeError):
    """No thread of any rank can go on."""


class Ended(BaseException):
    """Ends a rank's thread, which is not to run any further."""


class Generator(Protocol):
    """Random generator of the simulated device, whose state each rank has of its own."""

    def get_state(self) -> torch.Tensor:
        """Return the state as bytes."""

    def set_state(self, state: torch.Tensor) -> object:
        """Set the state."""


@dataclass(slots=True, eq=False)
class Rank:
    """One rank of one engine, with its number in that engine."""

    number: int


@dataclass(slots=True, eq=False)
class HostThread:
    """One thread of a rank; `rank` is None for the thread that drives the engine.

    A waiting thread runs again once `is_awaited` returns true; `awaited` says what it waits for. `step` is the engine
    step whose work the thread does.
    """

    name: str
    rank: Rank | None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    is_awaited: Callable[[], bool] | None = None
    awaited: str = ""
    step: int | None = None
    is_over: bool = False
    # Whether it has run in this trace; the threads of other engines only wait for theirs.
    has_run: bool = False
    # Of Python's thread, once it runs.
    ident: int = 0


class Hosts:
    """All host threads of this process.

    `variables` are the module variables of which each rank has its own value; `generator` is the device's.
    """

    def __init__(self, variables: Sequence[tuple[ModuleType, str]], generator: Generator) -> None:
        self._variables, self._generator = variables, generator
        self._initial = {(module.__name__, name): _copy(getattr(module, name)) for module, name in variables}
        self._values: dict[Rank | None, Mapping[tuple[str, str], Any]] = {}
        self._random: dict[Rank | None, Any] = {}
        self._driver = HostThread("engine", None, ident=threading.get_ident())
        self._threads = [self._driver]
        self._here = threading.local()
        self._here.thread = self._driver
        self._schedule = Schedule()
        self._num_choices = 0
        self._failure: BaseException | None = None
        self._is_ending = False
        # The latest step that the engine has planned.
        self.planned: int | None = None

    def step(self) -> int | None:
        """Return the engine step whose work the calling thread does."""
        return self.planned if self.here.rank is None else self.here.step

    @property
    def here(self) -> HostThread:
        """The thread that calls this."""
        thread: HostThread = getattr(self._here, "thread", self._driver)
        return thread

    def begin(self, schedule: Schedule) -> None:
        """Begin a trace: its schedule also selects which thread runs next.

        All ranks begin with the random states of the engine's thread: a trace does not depend on the one before.
        """
        self._schedule, self._num_choices = schedule, 0
        for thread in self._threads:
            thread.has_run = thread is self._driver
        self._random = dict.fromkeys(self._random, self._random_states())

    def start(self, name: str, rank: Rank, run: Callable[[], None]) -> None:
        """Start a thread of a rank, which runs once another thread waits."""
        thread = HostThread(name, rank)
        self._threads.append(thread)

        def main() -> None:
            torch.set_num_threads(1)
            self._here.thread, thread.ident = thread, threading.get_ident()
            thread.turn.acquire()
            try:
                if not thread.is_over:
                    run()
            except Ended:
                pass
            except BaseException as error:
                self.fail(error)
            thread.is_over = True
            self._threads.remove(thread)
            self._hand_over()

        threading.Thread(target=main, name=name, daemon=True).start()

    def end(self, ranks: Sequence[Rank]) -> None:
        """End all threads of ranks, each at the point where it waits, and forget the values of the ranks."""
        self._is_ending = True
        for thread in tuple(self._threads):
            if thread.rank in ranks:
                thread.is_over = True
                self.wait(partial(self._has_ended, thread), f"the end of {thread.name}", thread)
        self._is_ending = False
        for rank in ranks:
            self._values.pop(rank, None)
            self._random.pop(rank, None)

    def _has_ended(self, thread: HostThread) -> bool:
        return thread not in self._threads

    def wait(self, is_awaited: Callable[[], bool], awaited: str, then: HostThread | None = None) -> None:
        """Let other threads run until `is_awaited` returns true; `awaited` names it for an error.

        Raises:
            Stuck: no thread can go on.
        """
        here = self.here
        if here.is_over:
            raise Ended
        if is_awaited() and self._schedule.policy == "eager":
            return
        here.is_awaited, here.awaited = is_awaited, awaited
        self._hand_over(then)
        here.is_awaited = None

    def offer(self) -> None:
        """Let other threads run at this point, if the schedule selects one of them."""
        if self._schedule.policy != "eager":
            self.wait(lambda: True, "nothing")

    def fail(self, error: BaseException) -> None:
        """Report an error of a rank's thread: the driver raises it as soon as it runs."""
        if self._failure is None:
            self._failure = error

    def _hand_over(self, then: HostThread | None = None) -> None:
        """Let the next thread run, and return once it is this thread's turn again."""
        here = self.here
        following = then or self._next()
        if following is not here:
            self._exchange(here.rank, following.rank)
            following.has_run = True
            following.turn.release()
            if here not in self._threads:
                return
            here.turn.acquire()
        if here.is_over:
            raise Ended
        if here is self._driver and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _next(self) -> HostThread:
        """Return the thread that the schedule selects among those that can go on."""
        if self._failure is not None or self._is_ending:
            return self._driver
        able = [each for each in self._threads if each.is_awaited is None or each.is_awaited()]
        if not able:
            self.fail(Stuck(f"no rank can go on: {'; '.join(self._waiting())}"))
            return self._driver
        here = self.here
        match self._schedule.policy:
            case "eager":
                return able[0]
            case "lazy":
                # Each thread in turn, beginning behind this one.
                position = self._threads.index(here) + 1 if here in self._threads else 0
                order = (*self._threads[position:], *self._threads[:position])
                return next(each for each in order if each in able)
            case _:
                self._num_choices += 1
                return able[below(len(able), self._schedule.seed, "host", "turn", self._num_choices)]

    def _waiting(self) -> Iterator[str]:
        """Yield what each thread waits for, and in which line of the engine."""
        frames = sys._current_frames()
        for each in filter(lambda each: each.has_run, self._threads):
            yield f"{each.name} waits for {each.awaited}, in {line_in(frames.get(each.ident), _SKIPPED)}"

    def _exchange(self, rank: Rank | None, following: Rank | None) -> None:
        """Keep the module variables and random states of one rank, and set those of the following one."""
        if rank is following:
            return
        self._values[rank] = {(module.__name__, name): getattr(module, name) for module, name in self._variables}
        self._random[rank] = self._random_states()
        values = self._values.get(following)
        for module, name in self._variables:
            place = module.__name__, name
            setattr(module, name, values[place] if values is not None else _copy(self._initial[place]))
        if following in self._random:
            self._set_random_states(self._random[following])

    def _random_states(self) -> Any:
        return torch.get_rng_state(), random.getstate(), np.random.get_state(), self._generator.get_state()

    def _set_random_states(self, states: Any) -> None:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
        self._generator.set_state(states[3])


def _copy(value: Any) -> Any:
    return type(value)(value) if isinstance(value, dict) else value
