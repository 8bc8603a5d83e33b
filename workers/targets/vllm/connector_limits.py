"""Limits of engine specs and trace events with a KV connector (store, offloading, handoff).

A limit returns an `Excess` (what is refused, and what is allowed), or None. A store is an in-memory KV store; a handoff
prefills in a producer engine and decodes in a consumer engine.
"""

from scenarios.capabilities import Excess
from scenarios.events import (
    CONTROL_EVENTS,
    AnyEvent,
    DisturbTransfer,
    DummyStep,
    LoadWeights,
    Pause,
    ResetPrefixCache,
    Sleep,
)
from scenarios.spec import EngineSpec, Offloading


def no_offloading_of_hybrid_models(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: no offloading for hybrid models; gated delta nets allow no KV connector at all."""
    key = next(iter(_connectors(spec)), None)
    if key is None or spec.layers != "hybrid":
        return None
    without = spec.model_copy(update={key: None})
    if key == "offloading":
        reason = "offloading is observed for one KV cache group only"
        return Excess(key, "set with layers hybrid", "use layers: attention, or leave it out", without, reason)
    if spec.recurrent_layers == "short_conv":
        return None
    reason = "the state blocks that a step reads are not observed for these layers"
    return Excess(
        key,
        f"set with recurrent_layers {spec.recurrent_layers}",
        "use recurrent_layers: short_conv, or leave it out",
        without,
        reason,
    )


def no_connector_with_sliding_windows(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: no KV connector for models with sliding-window layers."""
    key = next(iter(_connectors(spec)), None)
    if key is None or spec.layers != "windows":
        return None
    reason = "connectors are observed for full attention and recurrent states only"
    return Excess(
        key,
        "set with layers windows",
        "use layers: attention, or leave it out",
        spec.model_copy(update={key: None}),
        reason,
    )


def hybrid_store_is_asynchronous_and_cached(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with a KV store, a hybrid model needs asynchronous loads and the prefix cache."""
    if spec.transfer is None or spec.layers != "hybrid":
        return None
    if spec.transfer.loads != "asynchronous":
        fixed = spec.model_copy(update={"transfer": spec.transfer.model_copy(update={"loads": "asynchronous"})})
        reason = "a step copies a recurrent state to its next block before its loads start"
        return Excess(
            "transfer.loads", spec.transfer.loads, "with layers hybrid asynchronous is allowed", fixed, reason
        )
    if not spec.prefix_cache:
        without = spec.model_copy(update={"transfer": None})
        reason = "only the prefix cache keeps the recurrent state at the end of a block"
        return Excess("transfer", "set with layers hybrid", "set prefix_cache: true", without, reason)
    return None


def at_most_one_connector(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: an engine has at most one KV connector."""
    first, *others = _connectors(spec) or [""]
    if not others:
        return None
    allowed, fixed = "an engine has at most one connector", spec.model_copy(update=dict.fromkeys(others))
    return Excess(others[0], f"set along with {first}", allowed, fixed)


def _connectors(spec: EngineSpec) -> list[str]:
    """Return the spec's keys that configure a KV connector and are set."""
    return [key for key in ("transfer", "offloading", "handoff") if getattr(spec, key) is not None]


def simple_connector_needs_prefix_cache(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: offloading connector `simple` needs the prefix cache, and defaults of its other keys."""
    if spec.offloading is None or spec.offloading.connector != "simple":
        return None
    allowed = "with connector simple only the default is allowed"
    for key in ("blocks_per_chunk", "eviction", "stored"):
        seen, default = getattr(spec.offloading, key), Offloading.model_fields[key].default
        if seen != default:
            offloading = spec.offloading.model_copy(update={key: default})
            return Excess(f"offloading.{key}", seen, allowed, spec.model_copy(update={"offloading": offloading}))
    if spec.prefix_cache:
        return None
    fixed = spec.model_copy(update={"offloading": spec.offloading.model_copy(update={"connector": "chunked"})})
    return Excess(
        "offloading.connector", "simple", "set prefix_cache: true", fixed, "it stores blocks of the prefix cache"
    )


def simple_connector_needs_streams(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: offloading connector `simple` needs device streams, so it cannot run on a CPU."""
    if spec.offloading is None or spec.offloading.connector != "simple":
        return None
    fixed = spec.model_copy(update={"offloading": spec.offloading.model_copy(update={"connector": "chunked"})})
    return Excess("offloading.connector", "simple", "on a CPU chunked is allowed", fixed, "a CPU has no streams")


def producer_pool_fits_max_model_len(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a handoff's producer engine has blocks for a request of `max_model_len` tokens."""
    handoff, least = spec.handoff, spec.max_blocks_per_request
    if handoff is None or handoff.producer_blocks >= least:
        return None
    fixed = spec.model_copy(update={"handoff": handoff.model_copy(update={"producer_blocks": least})})
    return Excess("handoff.producer_blocks", handoff.producer_blocks, f"max_model_len needs at least {least}", fixed)


def no_control_events_with_handoff(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no control event (such as a pause) or dummy step with the two engines of a handoff."""
    if spec.handoff is None or not (event.do in CONTROL_EVENTS or isinstance(event, DummyStep)):
        return None
    reason = "the event addresses one engine, and a handoff has two"
    return Excess("", event.do, "not allowed with handoff", None, reason)


def no_disturbances_of_offloading(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no `disturb_transfer` event (delay, fail, ...) with vLLM's offloading connectors."""
    if spec.offloading is None or not isinstance(event, DisturbTransfer):
        return None
    return Excess("", event.do, "not allowed with offloading", None, "loads of vLLM's own connector do not fail")


def no_cache_clearing_with_connector(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: with a KV connector, no event clears KV-cache blocks in use or changes the weights."""
    if not spec.has_connector:
        return None
    reason = "vLLM refuses to free blocks of a transfer in flight"
    match event:
        case Pause(clear_cache=True):
            fixed = event.model_copy(update={"clear_cache": False})
            return Excess("clear_cache", True, "with a KV connector False is allowed", fixed, reason)
        case Sleep(level=level) if level:
            return Excess(
                "level", level, "with a KV connector 0 is allowed", event.model_copy(update={"level": 0}), reason
            )
        case ResetPrefixCache(running=True) if spec.offloading is not None and spec.offloading.connector == "simple":
            # Its stores in flight hold references to their blocks.
            without = event.model_copy(update={"running": False})
            return Excess("running", True, "with connector simple False is allowed", without, reason)
        case LoadWeights():
            seen, allowed = event.version, "with a KV connector load_weights is not allowed"
            return Excess("version", seen, allowed, None, "the store keeps KV entries of the earlier weights")
    return None


def no_dummy_step_with_connector(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no dummy step (a batch without requests) with a KV connector."""
    if not spec.has_connector or not isinstance(event, DummyStep):
        return None
    return Excess(
        "", event.do, "not allowed with a KV connector", None, "no connector reports the blocks of a dummy step"
    )


def no_cuda_graphs_with_connector(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: no CUDA graphs with a KV connector."""
    if not spec.has_connector or spec.graphs == "none":
        return None
    allowed, fixed = "with a KV connector none is allowed", spec.model_copy(update={"graphs": "none"})
    reason = "a connector gets the blocks of a step at launch, which is too late for a captured graph"
    return Excess("graphs", spec.graphs, allowed, fixed, reason)
