"""Hand-off of prompts from a producer to a consumer: both sides of the connectors of both engines.

What a producer has computed stays its own until the consumer has read it, does not want it, or leaves it too long. How
it is handed over is as with connectors between machines: the producer's client is told where the blocks are, and tells
the consumer; who has read them tells the producer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workers.targets.vllm.inside.transfer.copies import Copies
from workers.targets.vllm.inside.transfer.flights import Flight, Flights
from workers.targets.vllm.inside.transfer.mover import Mover
from workers.targets.vllm.inside.transfer.planner import Planner, StepPlan

# Keys of a request's parameters by which vLLM tells what is asked of an engine.
DECODED_ELSEWHERE, COMPUTED_ELSEWHERE, BLOCKS = "do_remote_decode", "do_remote_prefill", "remote_block_ids"
# The blocks of its states, behind all that it has computed.
STATES = "remote_states"
# What a producer is asked for.
ASKED: Mapping[str, Any] = {DECODED_ELSEWHERE: True, COMPUTED_ELSEWHERE: False}


def num_computed_elsewhere(num_prompt_tokens: int, has_states: bool) -> int:
    """Return how many tokens of a prompt are computed before it is handed over: a state cannot go back behind one."""
    return num_prompt_tokens - (has_states and num_prompt_tokens > 1)


@dataclass(slots=True, eq=False)
class _Offer:
    """Blocks that a producer keeps: until they have been read, or, unless somebody reads them, for so long."""

    flight: Flight
    until: int
    is_read: bool = False
    is_over: bool = False


class Exchange:
    """What a producer keeps for its consumer, by the id that a request has in both."""

    def __init__(self, producer: Flights, lease_ticks: int) -> None:
        self._producer, self._lease_ticks = producer, lease_ticks
        self._offers: dict[str, _Offer] = {}

    def offer(self, request: str, blocks: list[int], states: list[int]) -> None:
        """Keep the blocks of a request that has ended; nothing for longer than this if it has none any more."""
        flight = self._producer.planned("send", request, blocks=blocks + states, slots=[], num_states=len(states))
        self._producer.start(flight)
        if blocks:
            self._offers[request] = _Offer(flight, self._producer.tick + self._lease_ticks)
        else:
            self._producer.end(flight, is_ahead=False)

    def keeps(self, request: str) -> bool:
        return request in self._offers and not self._offers[request].is_over

    def read(self, request: str) -> None:
        """Keep blocks that are being read for as long as that takes."""
        self._offers[request].is_read = True

    def give_back(self, request: str) -> None:
        """Keep blocks no longer; nothing if they are not kept."""
        if request in self._offers:
            self._offers[request].is_over = True

    def collect(self) -> set[str]:
        """Return the requests whose blocks need not be kept any more, once each."""
        tick = self._producer.tick
        for offer in self._offers.values():
            if tick >= offer.until and not (offer.is_read or offer.is_over):
                self._producer.probes["lease_expired"] += 1
                offer.is_over = True
        over = {name for name, offer in self._offers.items() if offer.is_over}
        for name in sorted(over):
            self._producer.end(self._offers.pop(name).flight, is_ahead=False)
        return over


class HandoffFlights(Flights):
    """Transfers of a producer or of a consumer, which meet in an exchange for the length of a trace."""

    exchange: Exchange


class Sender(Planner):
    """Side of a producer's scheduler."""

    flights: HandoffFlights

    def ended(self, request: Any, blocks: Sequence[list[int]]) -> tuple[bool, dict[str, Any] | None]:
        """Keep the blocks of a request whose prompt is computed."""
        super().ended(request, blocks)
        # Both ends of a request that is not given up are told by a token.
        if not request.num_output_tokens or request.status.name == "FINISHED_ABORTED":
            return False, None
        # Behind the prompt there may be blocks for drafts.
        kept = blocks[0][: -(-request.num_prompt_tokens // self.flights.block_size)]
        states = self.states_behind(request.num_prompt_tokens, blocks) if kept else []
        self.flights.exchange.offer(request.request_id, kept, states)
        return bool(kept), {DECODED_ELSEWHERE: False, COMPUTED_ELSEWHERE: True, BLOCKS: kept, STATES: states}


class SendingMover(Mover):
    """Side of a producer's worker: it copies nothing, its blocks are read."""

    flights: HandoffFlights

    def results(self, over: set[str]) -> tuple[set[str], set[str]]:
        return self.flights.exchange.collect(), set()


class Receiver(Planner):
    """Side of a consumer's scheduler: a request's prompt is loaded once, as far as it is not in the cache."""

    flights: HandoffFlights

    def __init__(self, flights: HandoffFlights, groups: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__(flights, groups, sizes)
        self._loads: list[Flight] = []

    def matched(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        given = request.kv_transfer_params
        if not given[COMPUTED_ELSEWHERE] or not self.flights.exchange.keeps(request.request_id):
            return 0, False
        count = max(0, self._num_given(request) - num_computed)
        return count, count > 0

    def _num_given(self, request: Any) -> int:
        """Return how many tokens of a prompt its producer has computed.

        The last one is computed again, for what is sampled behind it; where there are states, it is for the first time.
        """
        given, size = request.kv_transfer_params[BLOCKS], self.flights.block_size
        return min(num_computed_elsewhere(request.num_prompt_tokens, len(self.groups) > 1), len(given) * size)

    def admitted(self, request: Any, blocks: Sequence[list[int]], num_tokens: int) -> None:
        given, name, size = request.kv_transfer_params, request.request_id, self.flights.block_size
        if not given[COMPUTED_ELSEWHERE]:
            return
        given[COMPUTED_ELSEWHERE] = False
        if not num_tokens:
            self.flights.exchange.give_back(name)
            return
        stop = len(given[BLOCKS])
        first = (self._num_given(request) - num_tokens) // size
        self.flights.exchange.read(name)
        self.flights.probes["handoff_of_rest"] += first > 0
        slots = given[BLOCKS][first:stop] + given[STATES]
        places = blocks[0][first:stop] + self.states_behind(self._num_given(request), blocks)
        self._loads.append(
            self.flights.planned("load", name, blocks=places, slots=slots, num_states=len(given[STATES]))
        )

    def plan(self, output: Any) -> StepPlan:
        plan = super().plan(output)
        plan.loads, self._loads = self._loads, []
        return plan

    def ended(self, request: Any, blocks: Sequence[list[int]]) -> tuple[bool, dict[str, Any] | None]:
        """Have the blocks given back of a request that was given up before it could load them."""
        if request.kv_transfer_params[COMPUTED_ELSEWHERE]:
            self.flights.probes["handoff_unread"] += 1
            self.flights.exchange.give_back(request.request_id)
        return super().ended(request, blocks)

    def processed(self, ended: list[Flight], invalid: set[int]) -> None:
        for flight in ended:
            self.flights.exchange.give_back(flight.request)


class ReceivingMover(Mover):
    """Side of a consumer's worker: it reads the producer's cache."""

    def register(self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int]) -> None:
        super().register(caches, groups)
        self.copies = Copies(caches, groups, [])
