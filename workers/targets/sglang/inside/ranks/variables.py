"""Module variables of SGLang: those of which each rank has its own value, and those that all ranks share."""

from collections.abc import Mapping

from workers.targets.child.inside.rank_variables import RankVariables

# Swapped when another rank runs.
OWN: Mapping[str, tuple[str, ...]] = {
    "sglang.srt.distributed.parallel_state": (
        *("_WORLD", "_TP", "_ATTN_TP", "_SHARED_EXPERTS_TP", "_ATTN_CP", "_DCP", "_PDMUX_PREFILL_TP_GROUP", "_MOE_DP"),
        *("_MOE_EP", "_MOE_TP", "_PP", "_SELF_PP", "_TP_STATE_PATCHED", "_PP_STATE_PATCHED", "_groups"),
        *("_group_name_counter", "_ENABLE_CUSTOM_ALL_REDUCE", "_ENABLE_MSCCLPP", "_ENABLE_TORCH_SYMM_MEM_ALL_REDUCE"),
        *("_ENABLE_FLASHINFER_ALLREDUCE_ONLY", "_MODEL_PARALLEL_GROUP_TIMEOUT"),
    ),
    "sglang.srt.distributed.bootstrap": ("_PARALLEL_INITIALISED",),
    "sglang.srt.runtime_context": ("_CONTEXT", "_PARALLEL", "_GLOBAL_DWDP_MANAGER"),
    "sglang.srt.model_executor.forward_context": ("_current",),
    "sglang.srt.managers.overlap_utils": ("_offered_relay",),
    "sglang.srt.layers.layer_boundary.factories": ("_stack",),
    "sglang.srt.layers.cp.base": ("_STRATEGY",),
    # Functions change these dictionaries in place, which the check does not see: tensors shared by ranks show as races.
    "sglang.srt.layers.rotary_embedding.factory": ("_ROPE_DICT",),
    "sglang.srt.layers.dp_attention": ("_TBO_PERSIST_BUF",),
    "sglang.srt.model_executor.input_buffers": ("_forward_input_buffer_pool",),
    # Counts accesses of the prefix cache, in the order of which its entries are evicted.
    "sglang.srt.mem_cache.unified_cache.components.base": ("_LAST_ACCESS_TIME_COUNTER_FLOAT",),
    "sglang.srt.utils.offloader": ("_instance",),
    "sglang.srt.utils.patch_torch": ("SGLANG_TP_RANK",),
}
# Shared by all ranks: what is installed, found out about the machine or configured once, and what only logs use.
SHARED: Mapping[str, tuple[str, ...]] = {
    "sglang.kernels.fused_op": ("_forced_backend", "_trace_enabled"),
    "sglang.kernels.jit.utils.arch": ("_CUDA_ARCH",),
    "sglang.kernels.ops.attention.decode_attention": ("_KEEP_SCHEDULER_SPLITS", "_LOGGED_TUNE", "_NUM_CU"),
    "sglang.kernels.ops.grammar.token_filter_ops": ("_cached_num_sms",),
    "sglang.kernels.ops.mamba.triton_ops.ssu_dispatch": ("_mamba_ssu_backend",),
    "sglang.srt.arg_groups.prefill_buffer_ceiling": ("_prefill_buffer_ceiling_fn",),
    "sglang.srt.arg_groups.serving_hook": ("_ssl_verify_warned",),
    "sglang.srt.batch_invariant_ops.batch_invariant_ops": (
        *("_batch_invariant_LIB", "_batch_invariant_MODE", "_original_torch_bmm"),
    ),
    "sglang.srt.distributed.parallel_state": ("vllm_get_pp_group", "vllm_get_tp_group", "vllm_get_world_group"),
    "sglang.srt.layers.activation": ("_jit_act_max_vec_bytes",),
    "sglang.srt.layers.logits_processor": ("_autotune_run_lm_head",),
    "sglang.srt.layers.quantization.unquant": (
        *("_BF16_GEMM_BACKEND", "_cutedsl_bf16_gemm", "_direct_default_tactic", "_enable_bf16_splitk_gemm"),
        *("_hopper_bf16_gemv", "_prefer_direct", "_run_direct_dense", "_run_splitk_dense", "_run_warp_splitk_dense"),
        *("_splitk_tactic", "_use_cutedsl_bf16_gemm", "_use_hopper_bf16_gemv", "_warp_splitk_tactic"),
    ),
    "sglang.srt.managers.io_struct": ("_all_types", "_msgpack_decoder"),
    "sglang.srt.mem_cache.allocator.unified_sub_pool": ("_SIGNAL_HANDLERS_INSTALLED",),
    "sglang.srt.model_executor.forward_batch_info": ("_skip_attn_backend_init_warned",),
    "sglang.srt.model_executor.step_span_utils": ("_DETAILED_ANNOTATIONS_ENABLED",),
    "sglang.srt.model_loader.weight_utils": ("_PREFETCH_BLOCK_SIZE",),
    "sglang.srt.observability.func_timer": ("FUNC_LATENCY", "enable_metrics"),
    "sglang.srt.observability.req_time_stats": ("global_diff_realtime_monotonic",),
    "sglang.srt.observability.trace": (
        *("get_cur_time_ns", "global_trace_modules", "opentelemetry_initialized", "tracer"),
    ),
    "sglang.srt.observability.trace_async": ("_exporter_process", "_init_pid", "_zmq_context", "_zmq_endpoint"),
    "sglang.srt.observability.startup_func_log_and_timer": (
        *("STARTUP_LATENCY_SECONDS", "_max_durations", "enable_startup_metrics"),
    ),
    "sglang.srt.platforms": ("_current_platform",),
    "sglang.srt.plugins": ("_plugins_loaded",),
    "sglang.srt.runtime_context": ("_RECORD_DUMP_REGISTERED",),
    "sglang.srt.speculative.eagle_utils": ("_PREPARE_FOR_VERIFY_DEPS",),
    "sglang.srt.utils.aiter": ("_aiter_chip_info_cached",),
    "sglang.srt.utils.common": (
        *("_ENABLE_TORCH_INFERENCE_MODE", "_allowed_media_domains", "_media_url_max_file_size_bytes"),
        *("cached_device_index", "prometheus_multiproc_dir", "show_time_cost", "time_infos"),
    ),
    "sglang.srt.utils.hf_transformers.tokenizer": ("_fastokens_patched",),
    "sglang.srt.utils.hf_transformers_patches": ("_applied", "_is_base_mistral_patched"),
    "sglang.srt.utils.triton_load_watch": ("_installed", "_prev_compile_listener", "_serving_started"),
}
# Modules of which the simulated device uses nothing: kernels and memory of other devices, CUDA graphs, NCCL, experts,
# quantization, images and videos, and SGLang's own check that ranks agree and its test of that,
# which are off.
UNUSED: tuple[str, ...] = (
    "sglang.kernels.ops.layernorm.mhc",
    "sglang.kernels.ops.moe.fused_moe_triton_kernels",
    "sglang.srt.compilation.compile_phase",
    "sglang.srt.distributed.device_communicators.custom_all_reduce_utils",
    "sglang.srt.distributed.device_communicators.mooncake_transfer_engine",
    "sglang.srt.distributed.device_communicators.pynccl_allocator",
    "sglang.srt.distributed.gated_launch",
    "sglang.srt.distributed.naive_distributed",
    "sglang.srt.hardware_backend.npu.quantization.moe_methods",
    "sglang.srt.hardware_backend.npu.utils",
    "sglang.srt.hardware_backend.xpu.graph_runner.xpu_graph_runner",
    "sglang.srt.kv_canary.perturb.next_token_swap",
    "sglang.srt.layers.attention.flashinfer_backend",
    "sglang.srt.layers.attention.trtllm_mla_backend",
    "sglang.srt.layers.dcp.comm",
    "sglang.srt.layers.deep_gemm_wrapper.compile_utils",
    "sglang.srt.layers.flashinfer_comm_fusion",
    "sglang.srt.layers.moe.fused_moe_triton.layer",
    "sglang.srt.layers.moe.moe_runner.deep_gemm",
    "sglang.srt.layers.moe.moe_runner.triton_utils",
    "sglang.srt.layers.moe.topk",
    "sglang.srt.layers.quantization.fp4_utils",
    "sglang.srt.layers.quantization.fp8_utils",
    "sglang.srt.layers.quantization.humming",
    "sglang.srt.layers.quantization.nvfp4_online",
    "sglang.srt.managers.mm_schedule",
    "sglang.srt.managers.mm_utils",
    "sglang.srt.model_executor.cpu_graph_runner",
    "sglang.srt.model_executor.model_runner_components.cuda_graph_setup",
    "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph",
    "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.context",
    "sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph.context_manager",
    "sglang.srt.model_executor.runner_utils.capture_mode",
    "sglang.srt.model_executor.runner_utils.forked_metadata_prep",
    "sglang.srt.multiplex.pdmux_context",
    "sglang.srt.utils.host_shared_memory",
    "sglang.srt.utils.rank_consensus_checker",
    "sglang.srt.utils.torch_memory_saver_adapter",
    "sglang.srt.utils.video_decoder",
)

VARIABLES = RankVariables("sglang", OWN, SHARED, UNUSED)
