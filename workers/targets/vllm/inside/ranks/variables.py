"""Module variables of vLLM: those of which each rank has its own value, and those that all ranks share."""

from collections.abc import Mapping

from workers.targets.child.inside.rank_variables import RankVariables

# Swapped when another rank runs.
OWN: Mapping[str, tuple[str, ...]] = {
    "vllm.distributed.parallel_state": (
        *("_WORLD", "_INNER_DP_WORLD", "_NODE_COUNT", "_TP", "_ETP", "_ENGRAM_DP", "_DCP", "_PP", "_DP", "_EP"),
        *("_EPLB", "_PCP", "_ENABLE_CUSTOM_ALL_REDUCE", "_groups", "_group_name_counter"),
    ),
    "vllm.forward_context": ("_forward_context",),
    "vllm.config.vllm": ("_current_vllm_config", "_current_prefix"),
    "vllm.distributed.kv_transfer.kv_transfer_state": ("_KV_CONNECTOR_AGENT",),
    "vllm.distributed.ec_transfer.ec_transfer_state": ("_EC_CONNECTOR_AGENT",),
    "vllm.v1.worker.workspace": ("_manager",),
    "vllm.utils.torch_utils": ("_aux_stream",),
    "vllm.model_executor.layers.fused_moe": ("_config",),
}
# Shared by all ranks: what is installed, found out about the machine or configured once, and what only logs use.
SHARED: Mapping[str, tuple[str, ...]] = {
    "vllm._aiter_ops": ("_AITER_MLA_SUPPORTS_FP8", "_HIP_RUNTIME_HANDLE", "_OPS_REGISTERED"),
    "vllm.compilation.backends": ("compilation_start_time", "model_is_encoder", "model_tag"),
    "vllm.compilation.compiler_interface": ("_last_inductor_triton_cache_dir",),
    "vllm.compilation.monitor": ("cudagraph_capturing_enabled", "torch_compile_start_time"),
    "vllm.compilation.passes.inductor_pass": ("_pass_context",),
    "vllm.distributed.device_communicators.all_reduce_utils": ("_gpu_p2p_access_cache",),
    "vllm.entrypoints.openai.parser.harmony_utils": ("_harmony_encoding",),
    "vllm.env_override": ("_constrain_to_fx_strides_patched",),
    "vllm.envs": ("__getattr__",),
    "vllm.forward_context": ("batchsize_logging_interval", "forward_start_time", "last_logging_time"),
    "vllm.ir.op": ("_ENABLE_TORCH_WRAP",),
    "vllm.logger": ("_last_configured_logging_config", "_vllm_process_info"),
    "vllm.lora.utils": ("_GLOBAL_LORA_ID",),
    "vllm.model_executor.layers.fused_moe.utils": ("_warned_moe_use_td_ineffective",),
    "vllm.model_executor.layers.mamba.ops.ssu_dispatch": ("_flashinfer_replayssm_kernel", "_mamba_ssu_backend"),
    "vllm.model_executor.offloader.base": ("_instance",),
    "vllm.parser.metrics": ("_model_name", "_tool_call_parser_invocations"),
    "vllm.platforms": ("_current_platform", "_init_trace"),
    "vllm.platforms.interface": ("_assigned_physical_gpu_ids",),
    "vllm.plugins": ("plugins_loaded",),
    "vllm.transformers_utils.repo_utils": ("_hf_api",),
    "vllm.usage.usage_lib": ("_USAGE_STATS_ENABLED",),
    "vllm.utils.humming": ("_patched",),
    "vllm.utils.nccl": ("_unpinned_env",),
    "vllm.utils.watch_dog": ("_watch_dog",),
    "vllm.v1.core.kv_cache_utils": ("NONE_HASH", "_NONE_HASH_SEED"),
    "vllm.v1.utils": ("_PROFILER_FUNC",),
    "vllm.v1.worker.gpu.buffer_utils": ("_DEFAULT_MAX_CONCURRENCY",),
}
# Modules of which the simulated device uses nothing: kernels of other devices, NCCL, adapters, elastic experts.
UNUSED = (
    "vllm.distributed.device_communicators.pynccl",
    "vllm.distributed.device_communicators.pynccl_allocator",
    "vllm.distributed.elastic_ep.standby_state",
    "vllm.lora.layers.utils",
    "vllm.model_executor.determinism.batch_invariant",
    "vllm.model_executor.determinism.batch_invariant_configs",
    "vllm.model_executor.layers.attention.mm_encoder_attention",
    "vllm.model_executor.layers.fused_moe.experts.rocm_aiter_moe",
    "vllm.model_executor.layers.mamba.ops.mamba_ssm",
    "vllm.model_executor.layers.quantization.utils.marlin_utils",
    "vllm.model_executor.layers.quantization.utils.mxfp8_utils",
    "vllm.multimodal.gpu_ipc_memory",
    "vllm.utils.deep_gemm",
    "vllm.utils.gpu_sync_debug",
    "vllm.v1.simple_kv_offload.cuda_mem_ops",
    "vllm.v1.worker.ubatching",
)
VARIABLES = RankVariables("vllm", OWN, SHARED, UNUSED)
