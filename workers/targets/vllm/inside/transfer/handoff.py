"""KV connectors of a handoff: a producer prefills prompts, a consumer loads their blocks.

A producer keeps its blocks until the consumer has read them or declines them, or until their lease expires. As with
connectors between machines, the producer's output carries the block ids to the client, the client passes them to the
consumer, and the consumer reports to the producer when it has read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workers.targets.vllm.inside.transfer.copies import Copies
from workers.targets.vllm.inside.transfer.flights import Flight, Flights
from workers.targets.vllm.inside.transfer.mover import Mover
from workers.targets.vllm.inside.transfer.planner import Planner, StepPlan

# vLLM's keys in `kv_transfer_params`.
DECODED_ELSEWHERE, COMPUTED_ELSEWHERE, BLOCKS = "do_remote_decode", "do_remote_prefill", "remote_block_ids"
# Key of the state blocks after the last prefilled token.
STATES = "remote_states"
# The `kv_transfer_params` of a request to a producer.
PREFILL_PARAMS: Mapping[str, Any] = {DECODED_ELSEWHERE: True, COMPUTED_ELSEWHERE: False}


def num_prefilled_tokens(num_prompt_tokens: int, has_states: bool) -> int:
    """Return how many prompt tokens the producer prefills.

    All, or with recurrent states all but the last: a state cannot be rolled back to recompute that token.
    """
    return num_prompt_tokens - (has_states and num_prompt_tokens > 1)


@dataclass(slots=True, eq=False)
class _Offer:
    """Blocks that a producer keeps for its consumer, until they are read or a lease expires."""

    flight: Flight
    until: int
    is_read: bool = False
    is_over: bool = False


class Exchange:
    """Blocks kept by a producer for its consumer, by the request id that both engines use."""

    def __init__(self, producer: Flights, lease_ticks: int) -> None:
        self._producer, self._lease_ticks = producer, lease_ticks
        self._offers: dict[str, _Offer] = {}

    def offer(self, request: str, blocks: list[int], states: list[int]) -> None:
        """Keep a finished request's blocks for the consumer; without blocks, end the transfer."""
        flight = self._producer.planned("send", request, blocks=blocks + states, slots=[], num_states=len(states))
        self._producer.start(flight)
        if blocks:
            self._offers[request] = _Offer(flight, self._producer.tick + self._lease_ticks)
        else:
            self._producer.end(flight, is_ahead=False)

    def keeps(self, request: str) -> bool:
        return request in self._offers and not self._offers[request].is_over

    def read(self, request: str) -> None:
        """Mark a request's blocks as being read, so that an expired lease does not free them."""
        self._offers[request].is_read = True

    def release(self, request: str) -> None:
        """Release the blocks kept for a request, if any."""
        if request in self._offers:
            self._offers[request].is_over = True

    def collect(self) -> set[str]:
        """Return the requests whose blocks may be freed: released, or lease expired."""
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
    """KV transfers in flight of a producer or a consumer, which share an exchange."""

    exchange: Exchange


class Sender(Planner):
    """Scheduler side of a producer's KV connector: offers the blocks of prefilled prompts."""

    flights: HandoffFlights

    def ended(self, request: Any, blocks: Sequence[list[int]]) -> tuple[bool, dict[str, Any] | None]:
        """Offer a prefilled request's blocks to the consumer."""
        super().ended(request, blocks)
        # A request that was not aborted samples one token once its prompt is prefilled.
        if not request.num_output_tokens or request.status.name == "FINISHED_ABORTED":
            return False, None
        # After the prompt's blocks there may be blocks for draft tokens.
        kept = blocks[0][: -(-request.num_prompt_tokens // self.flights.block_size)]
        states = self.state_blocks_after(request.num_prompt_tokens, blocks) if kept else []
        self.flights.exchange.offer(request.request_id, kept, states)
        return bool(kept), {DECODED_ELSEWHERE: False, COMPUTED_ELSEWHERE: True, BLOCKS: kept, STATES: states}


class SendingMover(Mover):
    """Worker side of a producer's KV connector: copies nothing, the consumer reads its blocks."""

    flights: HandoffFlights

    def results(self, over: set[str]) -> tuple[set[str], set[str]]:
        return self.flights.exchange.collect(), set()


class Receiver(Planner):
    """Scheduler side of a consumer: loads each prompt once, without its prefix-cache hit."""

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
        """Return how many prompt tokens the producer has prefilled for a request.

        The last prompt token is computed again to sample from; with recurrent states the producer has not computed it.
        """
        given, size = request.kv_transfer_params[BLOCKS], self.flights.block_size
        return min(num_prefilled_tokens(request.num_prompt_tokens, len(self.groups) > 1), len(given) * size)

    def admitted(self, request: Any, blocks: Sequence[list[int]], num_tokens: int) -> None:
        given, name, size = request.kv_transfer_params, request.request_id, self.flights.block_size
        if not given[COMPUTED_ELSEWHERE]:
            return
        given[COMPUTED_ELSEWHERE] = False
        if not num_tokens:
            self.flights.exchange.release(name)
            return
        stop = len(given[BLOCKS])
        first = (self._num_given(request) - num_tokens) // size
        self.flights.exchange.read(name)
        self.flights.probes["handoff_of_rest"] += first > 0
        slots = given[BLOCKS][first:stop] + given[STATES]
        places = blocks[0][first:stop] + self.state_blocks_after(self._num_given(request), blocks)
        self._loads.append(
            self.flights.planned("load", name, blocks=places, slots=slots, num_states=len(given[STATES]))
        )

    def plan(self, output: Any) -> StepPlan:
        plan = super().plan(output)
        plan.loads, self._loads = self._loads, []
        return plan

    def ended(self, request: Any, blocks: Sequence[list[int]]) -> tuple[bool, dict[str, Any] | None]:
        """Release the producer's blocks of a request that ended before loading them."""
        if request.kv_transfer_params[COMPUTED_ELSEWHERE]:
            self.flights.probes["handoff_unread"] += 1
            self.flights.exchange.release(request.request_id)
        return super().ended(request, blocks)

    def processed(self, ended: list[Flight], invalid: set[int]) -> None:
        for flight in ended:
            self.flights.exchange.release(flight.request)


class ReceivingMover(Mover):
    """Worker side of a consumer's KV connector: copies from the producer's KV cache."""

    def register(self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int]) -> None:
        super().register(caches, groups)
        self.copies = Copies(caches, groups, [])
