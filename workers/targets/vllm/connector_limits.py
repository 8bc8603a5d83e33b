"""Limits of vLLM with a connector beside its cache: what a specification and its events may not ask for there."""

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


def offloading_is_of_attention(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: nothing of a hybrid model is offloaded, and of gated delta nets nothing comes from beside them."""
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


def windows_are_without_connectors(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: beside windows no blocks come from beside the cache."""
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


def states_are_loaded_beside_steps(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a hybrid model's loads are no part of steps, and of states that are kept with cached prefixes."""
    if spec.transfer is None or spec.layers != "hybrid":
        return None
    if spec.transfer.loads != "asynchronous":
        mended = spec.model_copy(update={"transfer": spec.transfer.model_copy(update={"loads": "asynchronous"})})
        reason = "a step copies a recurrent state to its next block before its loads start"
        return Excess(
            "transfer.loads", spec.transfer.loads, "with layers hybrid asynchronous is allowed", mended, reason
        )
    if not spec.prefix_cache:
        without = spec.model_copy(update={"transfer": None})
        reason = "only the prefix cache keeps the recurrent state at the end of a block"
        return Excess("transfer", "set with layers hybrid", "set prefix_cache: true", without, reason)
    return None


def connectors_are_alone(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: an engine has one connector."""
    first, *others = _connectors(spec) or [""]
    if not others:
        return None
    allowed, mended = "an engine has at most one connector", spec.model_copy(update=dict.fromkeys(others))
    return Excess(others[0], f"set along with {first}", allowed, mended)


def _connectors(spec: EngineSpec) -> list[str]:
    """Return the keys of the connectors that are asked for."""
    return [key for key in ("transfer", "offloading", "handoff") if getattr(spec, key) is not None]


def simple_offloading_is_of_the_prefix_cache(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the simple connector stores what the prefix cache has, block by block, and evicts as that does."""
    if spec.offloading is None or spec.offloading.connector != "simple":
        return None
    allowed = "with connector simple only the default is allowed"
    for key in ("blocks_per_chunk", "eviction", "stored"):
        seen, due = getattr(spec.offloading, key), Offloading.model_fields[key].default
        if seen != due:
            offloading = spec.offloading.model_copy(update={key: due})
            return Excess(f"offloading.{key}", seen, allowed, spec.model_copy(update={"offloading": offloading}))
    if spec.prefix_cache:
        return None
    mended = spec.model_copy(update={"offloading": spec.offloading.model_copy(update={"connector": "chunked"})})
    return Excess(
        "offloading.connector", "simple", "set prefix_cache: true", mended, "it stores blocks of the prefix cache"
    )


def simple_offloading_is_of_a_device(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the simple connector needs a device with streams."""
    if spec.offloading is None or spec.offloading.connector != "simple":
        return None
    mended = spec.model_copy(update={"offloading": spec.offloading.model_copy(update={"connector": "chunked"})})
    return Excess("offloading.connector", "simple", "on a CPU chunked is allowed", mended, "a CPU has no streams")


def producers_hold_the_model(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a request as long as the model allows has to fit into the pool of a producer."""
    handoff, least = spec.handoff, spec.max_blocks_per_request
    if handoff is None or handoff.producer_blocks >= least:
        return None
    mended = spec.model_copy(update={"handoff": handoff.model_copy(update={"producer_blocks": least})})
    return Excess("handoff.producer_blocks", handoff.producer_blocks, f"max_model_len needs at least {least}", mended)


def handoffs_are_undisturbed(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: what a server asks of one engine besides requests is not asked of two."""
    if spec.handoff is None or not (event.do in CONTROL_EVENTS or isinstance(event, DummyStep)):
        return None
    reason = "the event addresses one engine, and a handoff has two"
    return Excess("", event.do, "not allowed with handoff", None, reason)


def own_transfers_are_undisturbed(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no event changes what vLLM's own connector does."""
    if spec.offloading is None or not isinstance(event, DisturbTransfer):
        return None
    return Excess("", event.do, "not allowed with offloading", None, "loads of vLLM's own connector do not fail")


def clearings_are_without_transfers(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: beside a store nothing is forgotten by a pause, and weights stay those of what it holds."""
    if not spec.has_connector:
        return None
    reason = "vLLM refuses to free blocks of a transfer in flight"
    match event:
        case Pause(clear_cache=True):
            mended = event.model_copy(update={"clear_cache": False})
            return Excess("clear_cache", True, "with a KV connector False is allowed", mended, reason)
        case Sleep(level=level) if level:
            return Excess(
                "level", level, "with a KV connector 0 is allowed", event.model_copy(update={"level": 0}), reason
            )
        case ResetPrefixCache(running=True) if spec.offloading is not None and spec.offloading.connector == "simple":
            # Its stores hold blocks.
            without = event.model_copy(update={"running": False})
            return Excess("running", True, "with connector simple False is allowed", without, reason)
        case LoadWeights():
            seen, allowed = event.version, "with a KV connector load_weights is not allowed"
            return Excess("version", seen, allowed, None, "the store keeps KV entries of the earlier weights")
    return None


def dummy_steps_are_without_transfers(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: beside a store no dummy batch runs."""
    if not spec.has_connector or not isinstance(event, DummyStep):
        return None
    return Excess(
        "", event.do, "not allowed with a KV connector", None, "no connector reports the blocks of a dummy step"
    )


def graphs_are_without_connectors(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: beside a connector nothing is a graph: each writes into the cache."""
    if not spec.has_connector or spec.graphs == "none":
        return None
    allowed, mended = "with a KV connector none is allowed", spec.model_copy(update={"graphs": "none"})
    reason = "a connector gets the blocks of a step at launch, which is too late for a captured graph"
    return Excess("graphs", spec.graphs, allowed, mended, reason)
