"""Control plane of a session: pause and sleep, weights, dummy batches, the number of drafts, a neighbour.

What a server asks of its engine besides requests, by the methods of the engine's own process. A pause is complete once
the engine has nothing to do, as that process finds out; only then a client goes on.
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


class Beside(Protocol):
    """Another engine of the process, which answers the same request again and again."""

    def step(self) -> Sequence[tuple[int, ...]]:
        """Do a step; return the outputs that have come to their ends."""

    def close(self) -> None:
        """Come to an end."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a session is given besides its engine: of each version of its weights the folder and the checksums of an
    engine made with them; and another engine.
    """

    weights: Callable[[int], Path]
    checksums: Callable[[int], Mapping[str, str]]
    beside: Callable[[], Beside]


# The level of sleep at which weights are lost.
LOSING_WEIGHTS = 2

# Notes what has happened: its name, the version of weights, tokens or a count.
Note = Callable[[str, int, Sequence[int]], None]


class ControlPlane:
    """The control plane of one engine for one session.

    An engine that has other weights than it was made with, or has lost some, `is_spent`: nobody can have it back.
    """

    def __init__(self, engine: Any, probes: Counter[str], surroundings: Surroundings, note: Note) -> None:
        self.is_spent = False
        self._engine, self._probes, self._note, self._surroundings = engine, probes, note, surroundings
        self._tick = 0
        self._version = 0
        # Whether weights were exchanged while they slept.
        self._is_load_due = False
        # Digests of the drafter's own weights as they fell asleep.
        self._of_drafter: Mapping[str, str] = {}
        self._pausing: Pausing | None = None
        # The tick in which the pause ends, if it is complete by then.
        self._until = 0
        self._incomplete: list[tuple[Pausing, Future[Any]]] = []
        self._is_dummy_due = False
        self._beside: Beside | None = None
        self._beside_until = 0
        self._lookup = getattr(engine.scheduler, "dynamic_sd_lookup", None)

    @property
    def is_busy(self) -> bool:
        """Tell whether something is to happen by itself: a pause ends, or the neighbour has a turn."""
        return self._pausing is not None or self._tick < self._beside_until

    def happen(self, event: AnyEvent) -> bool:
        """Let an event happen between two steps; tell whether it is one of the control plane."""
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
                self._beside_until = max(self._beside_until, self._tick + ticks)
            case _:
                return False
        self.settle()
        return True

    def settle(self) -> None:
        """Let pauses complete that may, and end the one that is over."""
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
        """Do what comes behind a step, which `executed` the model or did not: a dummy batch, the neighbour's turn."""
        executor = self._engine.model_executor
        if executed and executor.is_sleeping:
            self._note("executed_asleep", 0, ())
        if self._is_dummy_due and not executed and not executor.is_sleeping:
            self._is_dummy_due = False
            self._probes["dummy_step"] += 1
            self._probes["dummy_step_in_flight"] += bool(self._engine.batch_queue)
            execute_dummy_batch(self._engine)
            self._note("dummy_step", 0, ())
        # Engines of a process share the table of rotations, which sleeps with the weights.
        if self._tick < self._beside_until and not executor.is_sleeping:
            if self._beside is None:
                self._beside = self._surroundings.beside()
            self._probes["neighbour_step"] += 1
            for tokens in self._beside.step():
                self._note("neighbour", 0, tokens)
        self._tick += 1

    def close(self) -> None:
        """Leave the engine as it was, and the neighbour without work."""
        if self._lookup is None and getattr(self._engine.scheduler, "dynamic_sd_lookup", None) is not None:
            self._engine.scheduler.dynamic_sd_lookup = None
        if self._beside is not None:
            self._beside.close()

    def cleared(self) -> None:
        """Note that the engine has been told to forget all that it has computed."""
        self._note("cleared", 0, ())

    def _pause(self, event: Pausing) -> None:
        engine, is_asleep = self._engine, isinstance(self._pausing, Sleep)
        self._probes["pause"] += 1
        self._probes["pause_in_flight"] += bool(engine.batch_queue)
        self._note(f"pause_{event.mode}", 0, ())
        if isinstance(event, Sleep) and not is_asleep:
            if event.level and engine.model_executor.driver_worker.worker.device.type != "cpu":
                from workers.targets.vllm.inside.sleeping import SimulatedSleep  # noqa: PLC0415  it loads vLLM

                SimulatedSleep.put_under(engine)
            if event.level:
                self._of_drafter = own_digests(engine)
            future = engine.sleep(event.level, event.mode)
        else:
            future = engine.pause_scheduler(event.mode, _is_clearing(event))
        until = self._tick + event.ticks
        # Who sleeps is woken, whatever else is paused meanwhile.
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
            # What a drafter keeps may still be others than those that it was made with.
            self.is_spent |= event.level == LOSING_WEIGHTS

    def _end(self, pausing: Pausing) -> None:
        """End a pause that is complete, whole."""
        if isinstance(pausing, Sleep):
            self._woken(pausing, None)
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
            # Whose engine says that it is awake wakes nothing more of it.
            if self._woken(self._pausing, [event.what]):
                self._ended()

    def _woken(self, sleep: Sleep, tags: list[str] | None) -> bool:
        """Wake an engine, and load the weights that it has lost or that are due; tell whether all of it is awake."""
        engine = self._engine
        of_weights = tags is None or "weights" in tags
        are_asleep = "weights" in engine.model_executor.sleeping_tags
        is_load_due = are_asleep and (sleep.level == LOSING_WEIGHTS or self._is_load_due)
        is_awake: bool = engine.wake_up(tags if sleep.level else ["scheduling"])
        if is_load_due and of_weights:
            self._is_load_due = False
            self._reload()
        elif of_weights and sleep.level:
            self._compare_weights()
        return is_awake

    def _reload(self) -> None:
        """Load the weights that are due from their files, in place."""
        folder = self._surroundings.weights(self._version)
        self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        self._compare_weights()

    def _compare_weights(self) -> None:
        """Note how many tensors are unlike those due.

        Of the target these are those of an engine that was made with the version due, of its drafter those that fell
        asleep: no version of these is ever loaded.
        """
        due = self._surroundings.checksums(self._version)
        there = self._engine.compute_weight_checksums()[0]
        unlike = sum(there.get(name) != due.get(name) for name in {*there, *due})
        self._note("weights", self._version, [unlike])
        if self._of_drafter:
            kept = own_digests(self._engine)
            unlike = sum(kept.get(name) != digest for name, digest in self._of_drafter.items())
            self._note("drafter_weights", self._version, [unlike])

    def _load(self, event: LoadWeights) -> None:
        engine = self._engine
        self._probes["load_weights"] += 1
        self._probes["load_weights_in_flight"] += bool(engine.batch_queue)
        self._version, self.is_spent = event.version, True
        if "weights" in engine.model_executor.sleeping_tags:
            # Whoever sleeps has no cache.
            self._is_load_due = True
            return
        self._reload()
        if event.clear_cache:
            engine.reset_prefix_cache(reset_running_requests=True)
            self.cleared()

    def _propose(self, k: int) -> None:
        """Have so many drafts proposed of each request, whatever the size of the batch, as a table of them may say."""
        scheduler = self._engine.scheduler
        if not scheduler.num_spec_tokens:
            return
        lookup = [min(k, scheduler.num_spec_tokens)] * (1 + scheduler.max_num_running_reqs)
        self._probes["k_change"] += lookup != (scheduler.dynamic_sd_lookup or [scheduler.num_spec_tokens] * len(lookup))
        scheduler.dynamic_sd_lookup = lookup


def _is_clearing(event: Pausing) -> bool:
    """Tell whether what was computed is forgotten once a pause is complete."""
    return event.clear_cache if isinstance(event, Pause) else isinstance(event, Sleep) and event.level > 0
