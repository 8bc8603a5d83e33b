"""Side of the worker: begins transfers, copies when they are due, and tells their ends."""

from collections.abc import Mapping

import torch

from workers.targets.vllm.inside.transfer.copies import Copies, new_store
from workers.targets.vllm.inside.transfer.flights import Flight, Flights, StoreFlights
from workers.targets.vllm.inside.transfer.planner import StepPlan


class Mover:
    """Transfers of one engine as its worker sees them; the attributes of `copies` bear their names in reports."""

    def __init__(self, flights: Flights) -> None:
        self.flights = flights
        self.copies: Copies | None = None
        self.caches: list[torch.Tensor] = []
        self._ended: list[Flight] = []
        self._invalid: set[int] = set()
        self._failed: set[str] = set()

    def register(self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int]) -> None:
        """Take the caches of all layers, by name, and of which group of layers each is."""
        self.caches = list(caches.values())

    def preempted(self, plan: StepPlan) -> None:
        """Do what must be done before blocks that requests lost are overwritten."""
        self.flights.look()

    def load(self, plan: StepPlan) -> None:
        """Begin a step's loads, and copy those that are due."""
        for flight in plan.loads:
            self.flights.start(flight)
        for flight in self._due("load"):
            self._load(flight)

    def wait_for_layer(self, layer: str) -> None:
        """Let the running step wait for what it loads of a layer."""

    def save(self, plan: StepPlan) -> None:
        """Begin a step's stores behind its kernels, and copy those that are due."""

    def results(self, over: set[str]) -> tuple[set[str], set[str]]:
        """Return the requests that are `over` whose blocks are needed no longer, and those whose load has ended."""
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
        """Return the blocks that did not arrive, of loads that have ended since the last call."""
        invalid, self._invalid = self._invalid, set()
        return invalid

    def take_failed(self) -> set[str]:
        """Return the requests of which a block did not arrive: vLLM asks for no more where there are several groups."""
        failed, self._failed = self._failed, set()
        self._invalid.clear()
        return failed

    def _due(self, of: str) -> list[Flight]:
        due = (each for each in self.flights.flights if each.of == of and each.has_begun and not each.is_copied)
        return [each for each in due if each.due <= self.flights.tick]

    def _load(self, flight: Flight) -> None:
        assert self.copies is not None, "the cache is registered"
        flight.is_copied = True
        for _ in range(1 + flight.is_repeated):
            self.copies.load(flight, lambda: self.flights.copied(flight))

    def _end(self, flight: Flight, is_ahead: bool = False) -> None:
        assert self.copies is not None, "the cache is registered"
        self.copies.wait(flight)
        self.flights.end(flight, is_ahead)
        self._ended.append(flight)


class StoreMover(Mover):
    """The same of an engine with a store."""

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
        """Finish the stores of requests that lost their blocks; those of the running step are of blocks got since."""
        for name in sorted(plan.preempted):
            for flight in self.flights.of(name, "store"):
                if flight.has_begun:
                    self.flights.probes["store_of_preempted"] += 1
                    self._save(flight)
                    self._end(flight, is_ahead=True)
        super().preempted(plan)

    def wait_for_layer(self, layer: str) -> None:
        assert self.copies is not None, "the cache is registered"
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
        # The target's kernels wait for the loads of their step; a drafter's are not launched yet.
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
        assert self.copies is not None, "the cache is registered"
        if not flight.is_copied:
            flight.is_copied = True
            for _ in range(1 + flight.is_repeated):
                self.copies.save(flight, lambda: self.flights.copied(flight))
