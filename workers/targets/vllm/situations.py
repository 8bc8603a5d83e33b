"""Situations of vLLM only, and the areas (of situations) that each of vLLM's files affects."""

from collections.abc import Mapping, Sequence

from scenarios.events import Pause, PauseMode
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import allows, situation
from scenarios.generation.weights import Area

_MODES: tuple[PauseMode, ...] = ("keep", "wait", "keep", "abort")
# Path patterns below a root of the sources.
AREAS: Mapping[Area, Sequence[str]] = {
    "scheduling": ("*/v1/core/sched/*", "*/input_batch.py", "*/gpu/states.py"),
    "speculation": ("*/spec_decode/*", "*/rejection_sampl*"),
    "sampling": ("*/v1/sample/*", "*/gpu/sample/*", "*/structured_output/*", "*/sampling_params.py"),
    "kv_cache": ("*/v1/core/kv_cache_manager.py", "*/v1/core/block_pool.py", "*/block_table*.py"),
    "prefix_cache": ("*/v1/core/kv_cache_utils.py", "*/v1/core/kv_cache_coordinator.py"),
    "recurrent_state": ("*mamba*", "*short_conv*", "*gated_delta*", "*gdn*", "*/fla/*"),
    "sliding_window": ("*/single_type_kv_cache_manager.py", "*sliding_window*"),
    "sessions": ("*/streaming*", "*/v1/engine/core.py"),
    "control_plane": ("*/v1/engine/core.py", "*/cumem*", "*/device_allocator/*", "*/weight_transfer/*"),
    "connectors": ("*/kv_transfer/*", "*/kv_offload/*", "*/kv_connector*"),
    "ranks": ("*/distributed/*", "*/executor/*", "*/pp_utils.py", "*/v1/worker/gpu_worker.py"),
    "cuda_graphs": ("*/compilation/*", "*cudagraph*", "*cuda_graph*"),
}


@situation(allows("logits_processor", True), stage="feature")
def user_logits_processor(trace: TraceBuilder) -> None:
    """Load a custom logits processor."""
    trace.set(logits_processor=True)


@situation(allows("tensor_ranks", 2), stage="feature")
def tensor_ranks(trace: TraceBuilder) -> None:
    """Split each layer over two ranks."""
    trace.set(tensor_ranks=2)


@situation(allows("pipeline_ranks", 2), stage="feature")
def pipeline_ranks(trace: TraceBuilder) -> None:
    """Distribute the layers over two ranks."""
    trace.set(pipeline_ranks=2)


# In ticks: requests for idle ranks follow so long after the first ones, and pauses begin after so long at most.
_NEXT_WAVE, _PAUSED_BY = 48, 64


@situation(allows("data_ranks", 2), stage="feature")
def data_ranks(trace: TraceBuilder) -> None:
    """Distribute the requests over two engines, whose ranks compute experts together.

    In 1 of 2 traces some requests arrive when all ranks are idle, and in 1 of 2 the ranks pause, up to three times.
    """
    trace.set(layers="experts", data_ranks=2)
    has_waves = trace.one_in(2, "waves")
    for index, submit in trace.submits():
        later = _NEXT_WAVE if has_waves and trace.one_in(3, "later", index) else 0
        trace.change(index, data_rank=trace.pick(2, "data rank", index), tick=submit.tick + later)
    if trace.one_in(2, "pauses"):
        for number in range(1 + trace.pick(3, "number of pauses")):
            tick, ticks = trace.pick(_PAUSED_BY, "pause", number), 1 + trace.pick(8, "ticks", number)
            mode = _MODES[trace.pick(len(_MODES), "mode", number)]
            trace.events.append(Pause(tick=tick, ticks=ticks, mode=mode, clear_cache=trace.one_in(4, "clears", number)))
