"""Situations that generation adds for vLLM only, and the areas that vLLM's files affect."""

from collections.abc import Mapping, Sequence

from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import allows, situation
from scenarios.generation.weights import Area

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


@situation(allows("data_ranks", 2), stage="feature")
def data_ranks(trace: TraceBuilder) -> None:
    """Distribute the requests over two engines, whose ranks compute experts together."""
    trace.set(layers="experts", data_ranks=2)
    for index, _ in trace.submits():
        trace.change(index, data_rank=trace.pick(2, "data rank", index))
