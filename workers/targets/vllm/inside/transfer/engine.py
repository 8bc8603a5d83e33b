"""Connectors of engines: how one is asked for, and which of a process is in use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scenarios.spec import EngineSpec
from workers.targets.vllm.inside.transfer.flights import Flights
from workers.targets.vllm.inside.transfer.offloading import Offloads
from workers.targets.vllm.inside.transfer.pool import CHUNKS


def transfer_config(spec: EngineSpec) -> Any:
    """Return vLLM's configuration of the transfers of an engine, None for one without."""
    if not spec.has_store:
        return None
    from vllm.config import KVTransferConfig  # noqa: PLC0415  what they replace must be replaced by then

    if spec.offloading is not None:
        extra = {
            CHUNKS: spec.offloading.chunks,
            "blocks_per_chunk": spec.offloading.blocks_per_chunk,
            "eviction_policy": spec.offloading.eviction,
            "offload_prompt_only": spec.offloading.stored == "prompts",
        }
        return KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=extra)
    assert spec.transfer is not None, "it has a store"
    # What such a drafter keeps of a block's last token depends on the token behind it.
    drops = spec.num_speculative_tokens > 0 and spec.drafter in ("eagle", "eagle3")
    return KVTransferConfig(
        kv_connector="StoreConnector",
        kv_connector_module_path="workers.targets.vllm.inside.transfer.connector",
        kv_role="kv_both",
        kv_load_failure_policy=spec.transfer.failures,
        kv_connector_extra_config={"flights": Flights(spec.transfer, spec.block_size, drops)},
    )


def observe_own_connector(engine: Any, spec: EngineSpec) -> None:
    """Observe vLLM's own connector of an engine that has just been made, if it has one."""
    if spec.offloading is None:
        return
    from vllm.distributed.kv_transfer import get_kv_transfer_group  # noqa: PLC0415

    engine.scheduler.connector.flights = Offloads(engine, get_kv_transfer_group(), spec.offloading)


def flights_of(engine: Any) -> Flights | Offloads | None:
    """Return the transfers of an engine that has a connector."""
    connector = engine.scheduler.connector
    flights: Flights | Offloads | None = connector.flights if connector is not None else None
    return flights


def connect(engine: Any) -> None:
    """Let this process's worker have the connector of an engine, or none: vLLM keeps one for all."""
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    flights = flights_of(engine)
    kv_transfer_state._KV_CONNECTOR_AGENT = flights.agent if flights is not None else None


def execute_dummy_batch(engine: Any) -> None:
    """Let an engine execute a dummy batch, which uses no block."""
    flights = flights_of(engine)
    if flights is not None:
        flights.is_dummy = True
    engine.execute_dummy_batch()
    if flights is not None:
        flights.is_dummy = False


@contextmanager
def unconnected() -> Iterator[None]:
    """Let this process's worker have no connector while another engine is made or has its turn."""
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    before, kv_transfer_state._KV_CONNECTOR_AGENT = kv_transfer_state._KV_CONNECTOR_AGENT, None
    try:
        yield
    finally:
        kv_transfer_state._KV_CONNECTOR_AGENT = before
