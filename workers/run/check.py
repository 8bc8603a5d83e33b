"""Run one trace under one schedule and judge it.

Verifies: everything `compare`, `referee` and `races` verify, progress, and that what was expected happened.
Does not verify: other schedules of the same trace (`worker` runs those).
"""

import traceback
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.events import Abort, AnyEvent, NoValidToken, Place, Schedule, Stall, Submit
from scenarios.trace import Trace
from workers.engine.engine import Engine
from workers.engine.parts import Parts
from workers.engine.runner import LANES
from workers.faults.registry import FAULTS
from workers.judge.checker import Checker
from workers.judge.races import Race, RaceDetector
from workers.lanes.base import Held
from workers.lanes.lane import Deadlock
from workers.lanes.policies import Eager, LaneOrder, Lazy, Policy, Random
from workers.oracle.incremental_tape import script_of
from workers.oracle.tape import Tapes
from workers.record.observation import VARIABLES, Recorder
from workers.record.verdict import Agreed, Crashed, Difference, Diverged, Stats, Stuck, Vacuous, Verdict
from workers.targets.devices import DeviceError, machine_on, parts_on
from workers.targets.target import DEFAULT_CONFIG, RunConfig


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is watched, none of which changes what the engine does.

    `races` judges every access; `blame` keeps the last writers of every buffer (slower); `without` removes waits and
    records, see `Machine`.
    """

    races: bool = True
    blame: bool = False
    without: frozenset[tuple[str, str]] = frozenset()


def policy_of(schedule: Schedule) -> Policy:
    """Build the base policy of a schedule."""
    match schedule.policy:
        case "eager":
            return Eager()
        case "lazy":
            return Lazy()
        case "lane_order":
            return LaneOrder(schedule.order)
        case "random":
            return Random(schedule.seed)


class EventQueue:
    """Events of a trace by tick and place, each with the number of submits before it."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.last_tick = max((event.tick for event in events), default=-1)
        self._events: dict[tuple[int, Place], list[tuple[AnyEvent, int]]] = {}
        num_submits = 0
        for event in events:
            self._events.setdefault((event.tick, event.at), []).append((event, num_submits))
            num_submits += isinstance(event, Submit)

    def at(self, tick: int, place: Place) -> Sequence[tuple[AnyEvent, int]]:
        """Return what happens at a place of a step, in order."""
        return self._events.get((tick, place), ())


class Run:
    """One engine on one machine, followed step by step."""

    def __init__(
        self,
        trace: Trace,
        tapes: Tapes,
        options: Options,
        parts: Parts | None = None,
        config: RunConfig = DEFAULT_CONFIG,
    ) -> None:
        self.trace = trace
        self.probes: dict[str, int] = defaultdict(int)
        self.recorder = Recorder(self._writers if options.blame else None)
        self.detector = RaceDetector(LANES) if options.races else None
        parts = parts if parts is not None else parts_on(config.device)
        for fault in trace.faults:
            parts = FAULTS[fault].apply(parts, self._reached(fault))
        held = [Held((h.op.name, h.op.step), (h.until.name, h.until.step)) for h in trace.schedule.holds]
        policy = policy_of(trace.schedule)
        self.machine = machine_on(config, LANES, policy, self.detector, held, options.without, options.blame)
        self._scripts: list[list[int]] = []
        self._work = 0
        for event in trace.submits():
            assert isinstance(event.prompt, tuple), "the trace is explicit"
            self._scripts.append(script_of(event, trace.spec, tapes))
            # A request that follows a grammar waits until each of its steps has been processed.
            self._work += len(event.prompt) + event.max_tokens * (trace.spec.depth if event.params.grammar else 1)
        self.engine = Engine(trace.spec, parts, self.machine, self.recorder, self.probes, trace.seed)
        self.events = EventQueue(trace.events)
        self.checker = Checker(trace, tapes)
        self._samples_taken = sum(isinstance(event, NoValidToken) for event in trace.events)
        self._held_back = sum(event.ticks for event in trace.events if isinstance(event, Stall))

    def _reached(self, fault: str) -> "Count":
        return Count(self.probes, f"fault {fault}")

    def stats(self) -> Stats:
        """Return what the run did so far."""
        engine, oracle = self.engine, self.checker.oracle
        self.probes |= {"random_decision": oracle.num_decisions, "ambiguous_decision": oracle.num_ambiguous}
        self.probes |= oracle.happened
        return Stats(
            requests=engine.num_submitted,
            steps=engine.tick,
            commits=engine.observer.num_commits,
            captures=self.checker.num_compared,
            run_ahead_max=engine.observer.run_ahead_max,
            digest=self.recorder.digest(),
            probes={name: count for name, count in sorted(self.probes.items()) if count},
        )

    def drained(self) -> bool:
        """Tell whether nothing is left to do: no event to come, no request alive, no step in flight."""
        return self.engine.tick > self.events.last_tick and self.engine.drained()

    def step(self) -> None:
        """Let the engine do one step, with the events of its tick."""
        self.engine.step(self._happen)

    def _happen(self, place: Place) -> None:
        for event, submit in self.events.at(self.engine.tick, place):
            match event:
                case Submit():
                    self.engine.submit(event, submit, self._scripts[submit])
                case Abort(request=name):
                    self.engine.abort(name)
                case _:
                    self.engine.apply(event)

    def to_end(self) -> Verdict:
        """Step until the engine has drained, something differs, or it makes no progress."""
        engine = self.engine
        while not self.drained():
            if engine.tick > self._ticks_max():
                return Stuck(stats=self.stats(), reason=f"not drained after {engine.tick} steps; {self._waiting()}")
            self.step()
            found = self._follow()
            if found is not None:
                return Diverged(stats=self.stats(), difference=self._explained(found))
        self.machine.drain()
        found = self._follow() or self.checker.at_end(engine.left_over(), self.recorder.digest())
        if found is None and self.detector is not None and self.detector.race is not None:
            found = _unordered(self.detector.race)
        if found is not None:
            return Diverged(stats=self.stats(), difference=self._explained(found))
        return self._expected()

    def _ticks_max(self) -> int:
        """Return the bound on steps: a request is computed once, and once more for each time it is set back.

        For want of blocks that is at most once for each token: who is preempted makes room for one that gets on.
        """
        work, for_blocks = self.trace.spec.depth + self._work, self.probes["preemption_by_blocks"]
        again = 1 + self.probes["preemption"] - for_blocks + min(for_blocks, work) + self._samples_taken
        return self.events.last_tick + self._held_back + work * again

    def _follow(self) -> Difference | None:
        """Compare what is new. A difference on the host is held against everything the device did before it."""
        log, self.engine.log[:] = list(self.engine.log), []
        found = self.checker.follow(log)
        if found is not None:
            self.machine.drain()
        on_device = self.checker.captures(self.recorder.take())
        if on_device is not None and (found is None or on_device.step < found.step + _follows_device(found)):
            found = on_device
        return found

    def difference_so_far(self) -> Diverged | None:
        """Compare what an engine that can go no further has shown."""
        found = self.checker.follow(self.engine.log) or self.checker.captures(self.recorder.take())
        return Diverged(stats=self.stats(), difference=self._explained(found)) if found is not None else None

    def _waiting(self) -> str:
        return self.checker.referee.waiting()

    def _explained(self, found: Difference) -> Difference:
        race = self.detector.race if self.detector is not None else None
        variable = VARIABLES.get(found.variable)
        writers = self.recorder.writers.get((found.step, found.variable), ())
        if variable is not None and not writers and variable.clock != "device":
            writers = (f"host:{variable.point}@{found.step}",)
        return found.model_copy(update={"writers": writers, "missing_order": str(race) if race else None})

    def _writers(self, variable: str) -> tuple[str, ...]:
        """Return who wrote the buffers behind a variable last, newest first in each of them."""
        names: tuple[str, ...] = BUFFERS_OF.get(variable, (variable,))
        if variable == "accepted_read" and self.trace.spec.accepted_counts == "host":
            names = ("inputs", "accepted_counts")
        buffers = [self.machine.buffers[name] for name in names if name in self.machine.buffers]
        return tuple(writer for buffer in buffers for writer in buffer.writers[:2])

    def _expected(self) -> Verdict:
        stats = self.stats()
        missing = [
            f"{probe}: expected at least {least}, seen {self.probes[probe]}"
            for probe, least in self.trace.expect.items()
            if self.probes[probe] < least
        ]
        for fault in self.trace.faults:
            if not self.probes[f"fault {fault}"]:
                missing.append(f"fault {fault}: never reached")
        if missing:
            return Vacuous(stats=stats, missing=tuple(missing))
        return Agreed(stats=stats)


def _unordered(race: Race) -> Difference:
    """Return a race as a difference: an order was expected, there is none."""
    return Difference(
        plane="races",
        variable=race.buffer,
        request="",
        commit="",
        step=race.step,
        position=None,
        expected=f"{race.first}, then {race.second}, in this order",
        actual="no order",
    )


def _follows_device(host: Difference) -> bool:
    """Tell whether a host difference is later than the device captures of its own step."""
    variable = VARIABLES.get(host.variable)
    return variable is not None and variable.point in ("corrected", "processed")


@dataclass(frozen=True, slots=True)
class Count:
    """Counts its calls under a name."""

    probes: dict[str, int]
    name: str

    def __call__(self) -> None:
        """Count one."""
        self.probes[self.name] += 1


BUFFERS_OF: dict[str, tuple[str, ...]] = {
    "draft_logits_read": ("draft_logits",),
    "attention": ("attended", "kv"),
    "hidden": ("hidden", "states", "conv"),
    "state": ("states", "slot_accepted"),
    "window": ("conv", "slot_accepted"),
    "block_state": ("block_states", "states"),
    "block_window": ("block_windows", "conv"),
    "block_state_at_end": ("block_states",),
    "block_window_at_end": ("block_windows",),
    "proposed": ("draft_tokens",),
    "drafter_state": ("drafter_states",),
    "drafter_window": ("drafter_conv",),
    "kv_at_end": ("kv",),
    "drafter_kv_at_end": ("drafter_kv",),
}


def check(
    trace: Trace,
    tapes: Tapes,
    options: Options = Options(),
    parts: Parts | None = None,
    config: RunConfig = DEFAULT_CONFIG,
) -> Verdict:
    """Run an explicit trace under its own schedule and return the verdict.

    `parts` are those of a clean engine on the device, if they are not given.

    Raises:
        DeviceError: the trace cannot run on that device.
    """
    for fault in trace.faults:
        missing = FAULTS[fault].missing(trace.spec)
        if missing is not None:
            empty = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})
            return Vacuous(stats=empty, missing=(missing,))
    run = Run(trace, tapes, options, parts, config)
    try:
        return run.to_end()
    except Deadlock as deadlock:
        return Stuck(stats=run.stats(), reason=str(deadlock))
    except Exception as error:
        if isinstance(error.__cause__, DeviceError):
            raise error.__cause__ from None
        # What was captured before may show why: a crash is often the harm of a difference.
        found = run.difference_so_far()
        if found is not None:
            return found
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.name} in {where.filename.rsplit('/', 1)[-1]}:{where.lineno}"
        race = run.detector.race if run.detector is not None else None
        order = str(race) if race is not None else None
        return Crashed(stats=run.stats(), error=f"{type(error).__name__}: {error}", where=place, missing_order=order)
