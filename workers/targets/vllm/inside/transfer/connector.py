"""KV connector classes; vLLM makes two objects of one, for the scheduler and the worker.

Both live in one process and share a `Flights`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)

from workers.targets.vllm.inside.transfer.copies import covers_all_blocks
from workers.targets.vllm.inside.transfer.flights import Flight, Flights
from workers.targets.vllm.inside.transfer.groups import group_numbers
from workers.targets.vllm.inside.transfer.handoff import Receiver, ReceivingMover, Sender, SendingMover
from workers.targets.vllm.inside.transfer.mover import Mover, StoreMover
from workers.targets.vllm.inside.transfer.planner import Planner, StepPlan, StorePlanner

# Key in `kv_connector_extra_config` with the shared `Flights`.
FLIGHTS_KEY = "flights"


@dataclass
class PlanMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """Connector metadata for the worker: the transfers and blocks of a step."""

    plan: StepPlan


@dataclass
class EndedTransfers(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """Connector metadata for the scheduler: transfers that have completed or failed."""

    flights: list[Flight]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Return the ended transfers of two workers together."""
        assert isinstance(other, EndedTransfers)
        return EndedTransfers([*self.flights, *other.flights])


class _Connector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Base KV connector: its planner acts for the scheduler, its mover for the worker."""

    sides: tuple[type[Planner], type[Mover]]

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.flights: Flights = self._kv_transfer_config.kv_connector_extra_config[FLIGHTS_KEY]
        make_planner, make_mover = self.sides
        self._groups = group_numbers(kv_cache_config)
        sizes = [kv_cache_config.kv_cache_groups[number].kv_cache_spec.block_size for number in self._groups]
        self.planner, self.mover = make_planner(self.flights, self._groups, sizes), make_mover(self.flights)
        if role == KVConnectorRole.WORKER:
            self.flights.agent = self

    # The scheduler's side.
    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self.planner.manager, self.flights.block_pool = kv_cache_manager, kv_cache_manager.block_pool

    def on_new_request(self, request: Any) -> None:
        self.planner.add(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self.planner.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        held = blocks.get_block_ids()
        self.planner.admitted(request, [held[number] for number in self._groups], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> PlanMetadata:
        return PlanMetadata(self.planner.plan(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        ended = connector_output.kv_connector_worker_meta
        flights = ended.flights if ended is not None else []
        self.planner.processed(flights, connector_output.invalid_block_ids)

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        """Return True: loads can restore recurrent states that a local prefix-cache hit lacks."""
        return True

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.planner.ended(request, [block_ids])

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.planner.ended(request, [block_ids[number] for number in self._groups])

    # The worker's side.
    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        groups = [self._kv_cache_config.kv_cache_groups[number] for number in self._groups]
        group_of = {name: index for index, group in enumerate(groups) for name in group.layer_names}
        self.mover.register(kv_caches, group_of)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        self.mover.preempted(kv_connector_metadata.plan)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self.mover.load(self._plan())

    def wait_for_layer_load(self, layer_name: str) -> None:
        self.mover.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Do nothing: `wait_for_save` stores all layers of the step."""

    def wait_for_save(self) -> None:
        self.mover.save(self._plan())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        stored, arrived = self.mover.results(finished_req_ids)
        failed = self.mover.take_failed() if len(self._groups) > 1 else set()
        return KVConnectorTransferResults(finished_sending=stored, finished_recving=arrived, failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.mover.take_invalid()

    def build_connector_worker_meta(self) -> EndedTransfers:
        return EndedTransfers(self.mover.take_ended())

    def accessed_tensors(self, name: str, tensors: Sequence[torch.Tensor], is_written: bool) -> Sequence[torch.Tensor]:
        """Return the tensors that a kernel accesses; of a KV cache only the step's blocks."""
        caches, plan = self.mover.caches, self.flights.plan
        if len(self._groups) == 1 or plan is None:
            return tensors
        blocks = set() if self.flights.is_dummy else plan.used(name, is_written)
        found: list[torch.Tensor] = []
        for each in tensors:
            found += [each[block] for block in sorted(blocks)] if covers_all_blocks(each, caches) else [each]
        return found

    def touched(self) -> tuple[list[int], list[int]] | None:
        """Return the block ids that the running step reads and writes; None if unknown."""
        if self.flights.is_dummy:
            return [], []
        if not self.has_connector_metadata():
            return None
        plan = self._plan()
        return sorted(plan.reads), sorted(plan.writes)

    def _plan(self) -> StepPlan:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, PlanMetadata), "`build_connector_meta` makes it"
        return metadata.plan


class StoreConnector(_Connector):
    """KV connector to a bounded in-memory store of this process."""

    sides = StorePlanner, StoreMover

    @property
    def requires_kv_delivery(self) -> bool:
        """Return False: if a store is lost, a later lookup misses."""
        return False

    def has_pending_push_work(self) -> bool:
        """Return whether stores of recurrent states are in flight, so that the engine stays busy.

        vLLM keeps no request for such a store.
        """
        return any(flight.of == "store" and flight.num_states for flight in self.flights.flights)


class ProducerConnector(_Connector):
    """KV connector of an engine that prefills prompts for a consumer engine."""

    sides = Sender, SendingMover


class ConsumerConnector(_Connector):
    """KV connector of an engine that decodes requests prefilled by a producer engine."""

    sides = Receiver, ReceivingMover
