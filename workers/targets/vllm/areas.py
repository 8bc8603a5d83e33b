"""Areas of vLLM's sources, and the scenarios that ask for what each of them does."""

from workers.targets.target import Area

_SCHEDULER = (
    "aborted_*",
    "batch",
    "chunks_beside_drafts",
    "hits_at_the_end",
    "left_out_of_a_step",
    "pool_too_small",
    "preempted_while_in_flight",
    "priorities",
    "second_turns",
    "sessions*",
    "shared_prefixes",
)
_CACHE = (*_SCHEDULER, "hybrid*", "windows*", "all_drafts_behind_prefixes", "loads_in_a_tight_pool", "store*")
_STEPS = ("fewer_drafts*", "padded_*", "grammars_in_turn", "dummy_steps", "two_engines")
_DRAFTERS = (
    "accepted_drafts",
    "all_drafts_*",
    "batch",
    "chunks_beside_drafts",
    "decodes_first*",
    "drawn_drafts",
    "fewer_drafts*",
    "heads_of_the_target",
    "lookup_*",
    "offloaded_with_drafters",
    "padded_*",
    "rejected_drafts",
    "several_layers",
)
_SAMPLING = (
    "logits_of_prompts",
    "logits_processor",
    "stop_words",
    "biased_logits",
    "drawn_*",
    "logprobs_*",
    "masks",
    "minimum_of_tokens",
    "near_likeliest",
    "penalties",
    "rejected_drafts",
)
_GRAMMARS = ("grammars*", "broken_grammars", "reasoning")
_TRANSFERS = (
    "handed_over*",
    "hybrid_handed_over",
    "hybrid_hits_apart",
    "hybrid_loaded_prompts",
    "load*",
    "offloaded_*",
    "preempted_and_loaded",
    "store*",
)
_HYBRID = ("hybrid*", "graphs_beside_s*")
_CONTROL = ("asleep", "paused_*", "weights_*", "dummy_steps", "fewer_drafts*", "two_engines")

# The longest prefix of a file's path says what area it is of; a source of no area is of all.
AREAS = (
    Area("scheduler", ("vllm/v1/core/sched/",), (*_SCHEDULER, *_STEPS, *_TRANSFERS, *_GRAMMARS, "paused_*")),
    Area("blocks and prefix cache", ("vllm/v1/core/", "vllm/v1/kv_cache", "vllm/v1/worker/block_table.py"), _CACHE),
    Area("requests and outputs", ("vllm/v1/request.py", "vllm/v1/outputs.py"), (*_SCHEDULER, *_SAMPLING, *_GRAMMARS)),
    Area("drafters", ("vllm/v1/spec_decode/", "vllm/v1/worker/gpu/spec_decode/"), _DRAFTERS),
    Area(
        "verification of drafts",
        ("vllm/v1/sample/rejection_sampler", "vllm/v1/worker/gpu/spec_decode/rejection_sampler"),
        (*_DRAFTERS, *_SAMPLING),
    ),
    Area(
        "sampling",
        (
            "vllm/logprobs.py",
            "vllm/sampling_params.py",
            "vllm/v1/engine/logprobs.py",
            "vllm/v1/sample/",
            "vllm/v1/worker/gpu/sample/",
        ),
        _SAMPLING,
    ),
    Area("grammars", ("vllm/v1/structured_output/", "vllm/v1/worker/gpu/structured_outputs.py"), _GRAMMARS),
    Area(
        "transfers",
        (
            "vllm/distributed/kv_events.py",
            "vllm/distributed/kv_transfer/",
            "vllm/v1/kv_offload/",
            "vllm/v1/simple_kv_offload/",
            "vllm/v1/worker/gpu/kv_connector.py",
            "vllm/v1/worker/kv_connector_model_runner_mixin.py",
        ),
        (*_TRANSFERS, "shared_prefixes"),
    ),
    Area(
        "hybrid models",
        (
            "vllm/model_executor/layers/mamba/",
            "vllm/v1/attention/backends/mamba",
            "vllm/v1/attention/backends/gdn_attn.py",
            "vllm/third_party/flash_linear_attention/",
            "vllm/v1/worker/gpu/model_states/mamba",
            "vllm/v1/worker/mamba_utils.py",
        ),
        _HYBRID,
    ),
    Area(
        "graphs",
        ("vllm/compilation/", "vllm/v1/cudagraph_dispatcher.py", "vllm/v1/worker/gpu/cudagraph_utils.py"),
        ("graphs*",),
    ),
    Area("engine core", ("vllm/v1/engine/core.py",), (*_CONTROL, "aborted_*", "grammars_in_turn", "batch")),
    Area("weights", ("vllm/distributed/weight_transfer/", "vllm/device_allocator/"), ("asleep", "weights_*")),
)
# Of a change that touches no source that runs here.
SMOKE = ("batch", "chunks_beside_drafts", "pool_too_small", "shared_prefixes")
