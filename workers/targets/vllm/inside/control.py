"""Control events on an engine: pause, sleep, weight reload, dummy step, number of drafts.

The neighbour is a second engine in the same process.

Events other than requests call the methods of vLLM's `EngineCoreProc`. As for a server's client, a pause is complete
once the engine is idle.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scenarios.events import AnyEvent, DummyStep, LoadWeights, Neighbour, Pause, Pausing, Resume, SetK, Sleep, WakeUp
from workers.targets.vllm.inside.drafter_weights import own_digests
from workers.targets.vllm.inside.transfer.engine import execute_dummy_batch


class NeighbourEngine(Protocol):
    """A second engine in this process, which repeats one request."""

    def step(self) -> Sequence[tuple[int, ...]]:
        """Run a step; return the output tokens of each repetition that finished in it."""

    def close(self) -> None:
        """Run the current request to its end, and release the engine."""


@dataclass(frozen=True, slots=True)
class SessionServices:
    """Services for control events of a trace: weight files and checksums, a second engine.

    `weights` returns the folder of a version of the weights, `checksums` those of an engine made with that version.
    """

    weights: Callable[[int], Path]
    checksums: Callable[[int], Mapping[str, str]]
    neighbour: Callable[[], NeighbourEngine]


# Sleep level at which the weights are discarded.
LOSING_WEIGHTS = 2

# Records a control observation: its name, a version of the weights, and tokens or a count.
Note = Callable[[str, int, Sequence[int]], None]


class ControlPlane:
    """Applies pause, sleep, weight-reload and similar events to one engine during one trace.

    `is_modified`: the engine has lost its weights or has others than it was made with, so no later trace may use it.
    """

    def __init__(self, engine: Any, probes: Counter[str], services: SessionServices, note: Note) -> None:
        self.is_modified = False
        self._engine, self._probes, self._note, self._services = engine, probes, note, services
        self._tick = 0
        self._version = 0
        # Whether weights were loaded during sleep, and must be reloaded on wake-up.
        self._is_load_due = False
        # Digests of the drafter's own weights before the sleep.
        self._drafter_digests: Mapping[str, str] = {}
        self._pausing: Pausing | None = None
        # Tick at which the pause ends, if it is complete by then.
        self._until = 0
        self._incomplete: list[tuple[Pausing, Future[Any]]] = []
        self._is_dummy_due = False
        self._neighbour: NeighbourEngine | None = None
        self._neighbour_until = 0
        self._lookup = getattr(engine.scheduler, "dynamic_sd_lookup", None)

    @property
    def is_busy(self) -> bool:
        """Return whether a pause is in effect, or the second engine has steps left to do."""
        return self._pausing is not None or self._tick < self._neighbour_until

    def happen(self, event: AnyEvent) -> bool:
        """Apply a trace event between two steps; return False if it is no control event."""
        self.settle()
        match event:
            case Pausing():
                self._pause(event)
            case Resume():
                if isinstance(self._pausing, Pause):
                    self._until = min(self._until, self._tick)
            case WakeUp():
                self._wake(event)
            case LoadWeights():
                self._load(event)
            case DummyStep():
                self._is_dummy_due = True
            case SetK(k=k):
                self._propose(k)
            case Neighbour(ticks=ticks):
                self._neighbour_until = max(self._neighbour_until, self._tick + ticks)
            case _:
                return False
        self.settle()
        return True

    def settle(self) -> None:
        """Complete pauses whose engine is idle, and resume pauses whose ticks are over."""
        engine = self._engine
        if not self._incomplete and self._pausing is None:
            return
        if not engine.has_work():
            engine._notify_idle_state_callbacks()
        for pausing, future in self._incomplete:
            if future.done():
                future.result()
                self._complete(pausing)
        self._incomplete = [each for each in self._incomplete if not each[1].done()]
        if self._pausing is not None and not self._incomplete and self._tick >= self._until:
            self._end(self._pausing)

    def stepped(self, executed: bool) -> None:
        """After an engine step, run a pending dummy step and a step of the second engine.

        `executed`: the step ran the model.
        """
        executor = self._engine.model_executor
        if executed and executor.is_sleeping:
            self._note("executed_asleep", 0, ())
        if self._is_dummy_due and not executed and not executor.is_sleeping:
            self._is_dummy_due = False
            self._probes["dummy_step"] += 1
            self._probes["dummy_step_in_flight"] += bool(self._engine.batch_queue)
            execute_dummy_batch(self._engine)
            self._note("dummy_step", 0, ())
        # Engines of a process share the rotary-embedding table, which is offloaded with the weights.
        if self._tick < self._neighbour_until and not executor.is_sleeping:
            if self._neighbour is None:
                self._neighbour = self._services.neighbour()
            self._probes["neighbour_step"] += 1
            for tokens in self._neighbour.step():
                self._note("neighbour", 0, tokens)
        self._tick += 1

    def close(self) -> None:
        """Restore the number of draft tokens; run the second engine's request to its end."""
        if self._lookup is None and getattr(self._engine.scheduler, "dynamic_sd_lookup", None) is not None:
            self._engine.scheduler.dynamic_sd_lookup = None
        if self._neighbour is not None:
            self._neighbour.close()

    def cleared(self) -> None:
        """Record that the engine has reset its KV cache."""
        self._note("cleared", 0, ())

    def _pause(self, event: Pausing) -> None:
        engine, is_asleep = self._engine, isinstance(self._pausing, Sleep)
        self._probes["pause"] += 1
        self._probes["pause_in_flight"] += bool(engine.batch_queue)
        self._note(f"pause_{event.mode}", 0, ())
        if isinstance(event, Sleep) and not is_asleep:
            if event.level and engine.model_executor.driver_worker.worker.device.type != "cpu":
                from workers.targets.vllm.inside.sleeping import SimulatedSleep  # noqa: PLC0415  it loads vLLM

                SimulatedSleep.install(engine)
            if event.level:
                self._drafter_digests = own_digests(engine)
            future = engine.sleep(event.level, event.mode)
        else:
            future = engine.pause_scheduler(event.mode, _is_clearing(event))
        until = self._tick + event.ticks
        # A sleep ends by a wake-up, even if another pause starts meanwhile.
        self._until = max(self._until, until) if is_asleep else until
        self._pausing = self._pausing if is_asleep else event
        if future is None:
            self._complete(event)
        else:
            self._incomplete.append((event, future))

    def _complete(self, event: Pausing) -> None:
        if _is_clearing(event):
            self.cleared()
        if event is self._pausing and isinstance(event, Sleep):
            self._probes["sleep"] += 1
            # The drafter's weights may differ from those that it was made with.
            self.is_modified |= event.level == LOSING_WEIGHTS

    def _end(self, pausing: Pausing) -> None:
        """End a pause: resume the scheduler, or after a sleep wake the engine."""
        if isinstance(pausing, Sleep):
            self._wake_engine(pausing, None)
        else:
            self._engine.resume_scheduler()
        self._ended()

    def _ended(self) -> None:
        self._pausing = None
        self._note("resume", 0, ())
        self._probes["resumed"] += 1

    def _wake(self, event: WakeUp) -> None:
        if not isinstance(self._pausing, Sleep):
            return
        if event.what == "all":
            self._until = min(self._until, self._tick)
        elif self._pausing.level and not self._incomplete and event.what in self._engine.model_executor.sleeping_tags:
            self._probes["wake_in_parts"] += 1
            # The engine reports that it is awake: nothing is left to wake.
            if self._wake_engine(self._pausing, [event.what]):
                self._ended()

    def _wake_engine(self, sleep: Sleep, tags: list[str] | None) -> bool:
        """Wake an engine and reload missing or outdated weights; return whether it is awake."""
        engine = self._engine
        wakes_weights = tags is None or "weights" in tags
        are_asleep = "weights" in engine.model_executor.sleeping_tags
        is_load_due = are_asleep and (sleep.level == LOSING_WEIGHTS or self._is_load_due)
        is_awake: bool = engine.wake_up(tags if sleep.level else ["scheduling"])
        if is_load_due and wakes_weights:
            self._is_load_due = False
            self._reload()
        elif wakes_weights and sleep.level:
            self._compare_weights()
        return is_awake

    def _reload(self) -> None:
        """Reload the current version of the weights in place, from its files."""
        folder = self._services.weights(self._version)
        self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        self._compare_weights()

    def _compare_weights(self) -> None:
        """Record how many weight tensors differ from the current version's checksums.

        The target's tensors are compared with those of an engine made with the current version. The drafter's own
        tensors are compared with those before the sleep, because no other version of them exists.
        """
        expected = self._services.checksums(self._version)
        actual = self._engine.compute_weight_checksums()[0]
        num_different = sum(actual.get(name) != expected.get(name) for name in {*actual, *expected})
        self._note("weights", self._version, [num_different])
        if self._drafter_digests:
            kept = own_digests(self._engine)
            num_different = sum(kept.get(name) != digest for name, digest in self._drafter_digests.items())
            self._note("drafter_weights", self._version, [num_different])

    def _load(self, event: LoadWeights) -> None:
        engine = self._engine
        self._probes["load_weights"] += 1
        self._probes["load_weights_in_flight"] += bool(engine.batch_queue)
        self._version, self.is_modified = event.version, True
        if "weights" in engine.model_executor.sleeping_tags:
            # A sleeping engine has no KV cache to clear.
            self._is_load_due = True
            return
        self._reload()
        if event.clear_cache:
            engine.reset_prefix_cache(reset_running_requests=True)
            self.cleared()

    def _propose(self, k: int) -> None:
        """Set the number of draft tokens per request to `k`, for every batch size.

        vLLM's table `dynamic_sd_lookup` may give other numbers for other batch sizes.
        """
        scheduler = self._engine.scheduler
        if not scheduler.num_spec_tokens:
            return
        lookup = [min(k, scheduler.num_spec_tokens)] * (1 + scheduler.max_num_running_reqs)
        self._probes["k_change"] += lookup != (scheduler.dynamic_sd_lookup or [scheduler.num_spec_tokens] * len(lookup))
        scheduler.dynamic_sd_lookup = lookup


def _is_clearing(event: Pausing) -> bool:
    """Return whether a pause clears the KV cache once it is complete."""
    return event.clear_cache if isinstance(event, Pause) else isinstance(event, Sleep) and event.level > 0
