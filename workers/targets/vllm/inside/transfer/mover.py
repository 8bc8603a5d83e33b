"""Worker side of our KV connectors: begin transfers, copy blocks, report ended transfers."""

from collections.abc import Mapping

import torch

from workers.targets.vllm.inside.transfer.copies import Copies, new_store
from workers.targets.vllm.inside.transfer.flights import Flight, Flights, StoreFlights
from workers.targets.vllm.inside.transfer.planner import StepPlan


class Mover:
    """Executes the KV transfers of one engine."""

    def __init__(self, flights: Flights) -> None:
        self.flights = flights
        self.copies: Copies | None = None
        self.caches: list[torch.Tensor] = []
        self._ended: list[Flight] = []
        self._invalid: set[int] = set()
        self._failed: set[str] = set()

    def register(self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int]) -> None:
        """Receive each layer's KV cache, and the index of its KV-cache group."""
        self.caches = list(caches.values())

    def preempted(self, plan: StepPlan) -> None:
        """Record transfers' blocks before the step may overwrite those of preempted requests."""
        self.flights.record_blocks()

    def load(self, plan: StepPlan) -> None:
        """Begin the loads of a step, and copy those that are ready at this tick."""
        for flight in plan.loads:
            self.flights.start(flight)
        for flight in self._due("load"):
            self._load(flight)

    def wait_for_layer(self, layer: str) -> None:
        """Make the running step wait for the synchronous loads of a layer."""

    def save(self, plan: StepPlan) -> None:
        """Begin and copy the stores of a step after its kernels; here none."""

    def results(self, over: set[str]) -> tuple[set[str], set[str]]:
        """Return the requests whose blocks may be freed, and the requests whose loads have ended.

        `over` are the requests that finished since the last call.
        """
        arrived = set()
        for flight in [each for each in self.flights.flights if each.of == "load" and each.is_copied]:
            if not flight.is_synchronous:
                self._failed |= {flight.request} if flight.lost else set()
                self._invalid.update(flight.blocks[index] for index in flight.lost)
                arrived.add(flight.request)
                self._end(flight)
        return set(), arrived

    def take_ended(self) -> list[Flight]:
        """Return the transfers that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def take_invalid(self) -> set[int]:
        """Return the ids of blocks that failed to load since the last call."""
        invalid, self._invalid = self._invalid, set()
        return invalid

    def take_failed(self) -> set[str]:
        """Return the requests whose load failed since the last call, and forget their blocks.

        vLLM expects requests in place of blocks if there are several KV-cache groups.
        """
        failed, self._failed = self._failed, set()
        self._invalid.clear()
        return failed

    def _due(self, of: str) -> list[Flight]:
        due = (each for each in self.flights.flights if each.of == of and each.has_begun and not each.is_copied)
        return [each for each in due if each.due <= self.flights.tick]

    def _load(self, flight: Flight) -> None:
        assert self.copies is not None, "`register` was called"
        flight.is_copied = True
        for _ in range(1 + flight.is_repeated):
            self.copies.load(flight, lambda: self.flights.copied(flight))

    def _end(self, flight: Flight, is_ahead: bool = False) -> None:
        assert self.copies is not None, "`register` was called"
        self.copies.wait(flight)
        self.flights.end(flight, is_ahead)
        self._ended.append(flight)


class StoreMover(Mover):
    """Worker side of the KV connector to a store."""

    flights: StoreFlights

    def __init__(self, flights: StoreFlights) -> None:
        super().__init__(flights)
        self._over: set[str] = set()
        # Synchronous loads of the running step.
        self._loading: list[Flight] = []

    def register(self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int]) -> None:
        super().register(caches, groups)
        self.copies = Copies(caches, groups, new_store(caches, self.flights.spec.store_blocks))

    def preempted(self, plan: StepPlan) -> None:
        """Finish the stores of preempted requests, whose blocks the running step may overwrite."""
        for name in sorted(plan.preempted):
            for flight in self.flights.of(name, "store"):
                if flight.has_begun:
                    self.flights.probes["store_of_preempted"] += 1
                    self._save(flight)
                    self._end(flight, is_ahead=True)
        super().preempted(plan)

    def wait_for_layer(self, layer: str) -> None:
        assert self.copies is not None, "`register` was called"
        for flight in self._loading:
            self.copies.wait_on_stream(flight, layer)

    def save(self, plan: StepPlan) -> None:
        for flight in plan.stores:
            self.flights.start(flight)
        for flight in self._due("store"):
            self._save(flight)
            if flight.is_synchronous:
                self._end(flight)

    def results(self, over: set[str]) -> tuple[set[str], set[str]]:
        self._over |= over
        _, arrived = super().results(over)
        for flight in [each for each in self.flights.flights if each.of == "store" and each.is_copied]:
            self._end(flight)
        # The target's kernels wait for the loads of their step; the drafter's kernels are not launched yet.
        loading, self._loading = self._loading, []
        for flight in loading:
            self._end(flight)
        held_back = self.flights.held_back
        stored = {name for name in held_back & self._over if not self.flights.stores_tokens(name)}
        self.flights.held_back -= stored
        self._over &= held_back
        return stored, arrived

    def _load(self, flight: Flight) -> None:
        super()._load(flight)
        if flight.is_synchronous:
            self._invalid.update(flight.blocks[index] for index in flight.lost)
            self._loading.append(flight)

    def _save(self, flight: Flight) -> None:
        assert self.copies is not None, "`register` was called"
        if not flight.is_copied:
            flight.is_copied = True
            for _ in range(1 + flight.is_repeated):
                self.copies.save(flight, lambda: self.flights.copied(flight))
