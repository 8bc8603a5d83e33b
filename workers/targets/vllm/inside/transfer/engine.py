"""Connectors of engines: how one is asked for, and which of a process is in use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scenarios.spec import EngineSpec
from workers.targets.vllm.inside.transfer.flights import Flights


def transfer_config(spec: EngineSpec) -> Any:
    """Return vLLM's configuration of the transfers of an engine, None for one without."""
    if spec.transfer is None:
        return None
    from vllm.config import KVTransferConfig  # noqa: PLC0415  what they replace must be replaced by then

    # What such a drafter keeps of a block's last token depends on the token behind it.
    drops = spec.num_speculative_tokens > 0 and spec.drafter in ("eagle", "eagle3")
    return KVTransferConfig(
        kv_connector="StoreConnector",
        kv_connector_module_path="workers.targets.vllm.inside.transfer.connector",
        kv_role="kv_both",
        kv_load_failure_policy=spec.transfer.failures,
        kv_connector_extra_config={"flights": Flights(spec.transfer, spec.block_size, drops)},
    )


def flights_of(engine: Any) -> Flights | None:
    """Return the transfers of an engine that has a connector."""
    connector = engine.scheduler.connector
    flights: Flights | None = connector.flights if connector is not None else None
    return flights


def connect(engine: Any) -> None:
    """Let this process's worker have the connector of an engine, or none: vLLM keeps one for all."""
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    flights = flights_of(engine)
    kv_transfer_state._KV_CONNECTOR_AGENT = flights.agent if flights is not None else None


@contextmanager
def unconnected() -> Iterator[None]:
    """Let this process's worker have no connector while another engine is made or has its turn."""
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    before, kv_transfer_state._KV_CONNECTOR_AGENT = kv_transfer_state._KV_CONNECTOR_AGENT, None
    try:
        yield
    finally:
        kv_transfer_state._KV_CONNECTOR_AGENT = before
