"""KV connector that copies no data: a test sets which blocks fail to load."""

from dataclasses import dataclass, field
from typing import Any

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorTransferResults,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput


@dataclass
class Loads(KVConnectorMetadata):  # type: ignore[misc]
    """Loads that end in a step: their request ids, and the ids of failed blocks."""

    requests: set[str] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)


class PrefixConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """KV connector that matches prompts with full blocks of finished requests."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.is_asynchronous = extra["is_asynchronous"]
        self.block_size = vllm_config.cache_config.block_size
        self.known: set[tuple[int, ...]] = set()
        self.to_lose: dict[str, int] = {}
        self.begun, self.ending = Loads(), Loads()

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        size, end = self.block_size, num_computed_tokens
        # A synchronous load leaves one token for its step to compute.
        last = request.num_tokens - (not self.is_asynchronous)
        while (
            end + size <= last
            and tuple(request.all_token_ids[: end + size]) in self.known
        ):
            end += size
        count = end - num_computed_tokens
        return count, self.is_asynchronous and count > 0

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None:
        if num_external_tokens:
            self.begun.requests.add(request.request_id)
            if request.request_id in self.to_lose:
                index = self.to_lose.pop(request.request_id)
                self.begun.lost.add(blocks.get_block_ids()[0][index])

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        begun, self.begun = self.begun, Loads()
        if not self.is_asynchronous:
            return begun
        # An asynchronous load ends one step later.
        ending, self.ending = self.ending, begun
        return ending

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        size = self.block_size
        ends = range(size, request.num_computed_tokens + 1, size)
        self.known |= {tuple(request.all_token_ids[:end]) for end in ends}
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        arrived = (
            self._get_connector_metadata().requests if self.is_asynchronous else set()
        )
        return KVConnectorTransferResults(finished_recving=set(arrived))

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set(self._get_connector_metadata().lost)


def prefix_connector(is_asynchronous: bool) -> KVTransferConfig:
    """Return the `KVTransferConfig` that selects `PrefixConnector`."""
    return KVTransferConfig(
        kv_connector=PrefixConnector.__name__,
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"is_asynchronous": is_asynchronous},
    )


def model_output(
    plan: SchedulerOutput, sampled: dict[str, list[int]]
) -> ModelRunnerOutput:
    """Return the `ModelRunnerOutput` of a step, with its finished and failed loads."""
    rows = {name: row for row, name in enumerate(sampled)}
    loads = plan.kv_connector_metadata
    ended = KVConnectorOutput(
        finished_recving=loads.requests, invalid_block_ids=loads.lost
    )
    return ModelRunnerOutput(
        [*rows], rows, [*sampled.values()], kv_connector_output=ended
    )
