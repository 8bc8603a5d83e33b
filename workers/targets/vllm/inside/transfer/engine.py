"""KV connector of an engine: its configuration, and its connection while the engine runs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from scenarios.spec import EngineSpec, Handoff, Transfer
from workers.targets.vllm.inside.transfer.flights import Flights, Note, StoreFlights
from workers.targets.vllm.inside.transfer.handoff import Exchange, HandoffFlights
from workers.targets.vllm.inside.transfer.offloading import Offloads
from workers.targets.vllm.inside.transfer.pool import CHUNKS
from workers.targets.vllm.inside.transfer.simple_offloading import SimpleOffloads


def transfer_config(spec: EngineSpec, *, is_producer: bool = False) -> Any:
    """Return an engine's `KVTransferConfig`, or None without a KV connector."""
    if not spec.has_connector:
        return None
    from vllm.config import KVTransferConfig  # noqa: PLC0415  import after our replacements in vLLM

    if spec.offloading is not None:
        extra: dict[str, object] = {CHUNKS: spec.offloading.chunks}
        if spec.offloading.connector == "simple":
            named = "SimpleCPUOffloadConnector"
            return KVTransferConfig(kv_connector=named, kv_role="kv_both", kv_connector_extra_config=extra)
        extra |= {
            "blocks_per_chunk": spec.offloading.blocks_per_chunk,
            "eviction_policy": spec.offloading.eviction,
            "offload_prompt_only": spec.offloading.stored == "prompts",
        }
        return KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=extra)
    if spec.handoff is not None:
        names = ("load_ticks", "timeout_ticks", "failures")
        ways = Transfer(**{name: getattr(spec.handoff, name) for name in names})
        flights: Flights = HandoffFlights(ways, spec.block_size)
        named, role = ("ProducerConnector", "kv_producer") if is_producer else ("ConsumerConnector", "kv_consumer")
    else:
        assert spec.transfer is not None, "a spec with a connector and no offloading or handoff has a store"
        # Such a drafter's KV entry of a block's last token depends on the token after the block.
        depends_on_next = spec.num_speculative_tokens > 0 and spec.drafter in ("eagle", "eagle3", "mtp")
        ways, named, role = spec.transfer, "StoreConnector", "kv_both"
        flights = StoreFlights(ways, spec.block_size, num_lookahead_tokens=int(depends_on_next))
    return KVTransferConfig(
        kv_connector=named,
        kv_connector_module_path="workers.targets.vllm.inside.transfer.connector",
        kv_role=role,
        kv_load_failure_policy=ways.failures,
        kv_connector_extra_config={"flights": flights},
    )


def observe_own_connector(engine: Any, spec: EngineSpec) -> None:
    """Observe the offloading connector of a new engine, if its spec has one."""
    if spec.offloading is None:
        return
    from vllm.distributed.kv_transfer import get_kv_transfer_group  # noqa: PLC0415

    observer = SimpleOffloads if spec.offloading.connector == "simple" else Offloads
    engine.scheduler.connector.flights = observer(engine, get_kv_transfer_group(), spec.offloading)


def flights_of(engine: Any) -> Flights | Offloads | SimpleOffloads | None:
    """Return the KV transfers in flight of an engine, or None without a KV connector."""
    connector = engine.scheduler.connector
    flights: Flights | Offloads | SimpleOffloads | None = connector.flights if connector is not None else None
    return flights


def connect(engine: Any) -> None:
    """Make the worker side of this engine's KV connector (or None) the process's connector.

    vLLM has one worker-side connector per process.
    """
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    flights = flights_of(engine)
    kv_transfer_state._KV_CONNECTOR_AGENT = flights.agent if flights is not None else None


def execute_dummy_batch(engine: Any) -> None:
    """Run a dummy batch, in which kernels use no KV-cache block."""
    flights = flights_of(engine)
    if flights is not None:
        flights.is_dummy = True
    engine.execute_dummy_batch()
    if flights is not None:
        flights.is_dummy = False


@contextmanager
def using_connector_of(engine: Any) -> Iterator[None]:
    """Return a context in which the process uses this engine's KV connector and stream."""
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    flights, before = flights_of(engine), kv_transfer_state._KV_CONNECTOR_AGENT
    try:
        connect(engine)
        with on_stream(flights.stream if isinstance(flights, Flights) else None):
            yield
    finally:
        kv_transfer_state._KV_CONNECTOR_AGENT = before


def on_stream(stream: Any) -> AbstractContextManager[None]:
    """Return a context in which `stream` is the current stream; None changes nothing."""
    on: Any = torch.cuda.stream
    return nullcontext() if stream is None else on(stream)


def begin_producer(producer: Any, consumer: Any, handoff: Handoff, probes: Counter[str], note: Note) -> HandoffFlights:
    """Begin a trace on a producer, after its consumer's; return the producer's transfers."""
    sent, received = producer.scheduler.connector.flights, consumer.scheduler.connector.flights
    sent.begin(probes, note)
    sent.exchange = received.exchange = Exchange(sent, handoff.lease_ticks)
    received.agent.mover.copies.store = sent.agent.mover.caches
    return sent  # type: ignore[no-any-return]


@contextmanager
def without_connector() -> Iterator[None]:
    """Return a context without a worker-side KV connector, e.g. to create another engine."""
    from vllm.distributed.kv_transfer import kv_transfer_state  # noqa: PLC0415

    before, kv_transfer_state._KV_CONNECTOR_AGENT = kv_transfer_state._KV_CONNECTOR_AGENT, None
    try:
        yield
    finally:
        kv_transfer_state._KV_CONNECTOR_AGENT = before
