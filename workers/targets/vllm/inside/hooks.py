"""Attributes of vLLM that our observers wrap or use; a version that lacks one is refused."""

from dataclasses import dataclass

from workers.targets.child.inside.replacements import Hooks
from workers.targets.vllm.names import RunnerName
from workers.targets.vllm.request_features import OUTPUT_FIELDS, SAMPLING_KEYS


@dataclass(frozen=True, slots=True)
class RunnerHooks(Hooks):
    """Attributes of one vLLM module that observers need with these model runners."""

    runners: tuple[RunnerName, ...] = ("v1", "v2")


ENGINES = (
    RunnerHooks(
        "vllm.engine.arg_utils",
        "EngineArgs",
        "create_engine_config model hf_overrides dtype enforce_eager compilation_config kernel_config seed "
        "kv_cache_memory_bytes num_gpu_blocks_override block_size max_model_len max_num_seqs max_num_scheduled_tokens "
        "max_num_batched_tokens long_prefill_token_threshold enable_prefix_caching enable_chunked_prefill "
        "scheduling_policy async_scheduling logprobs_mode speculative_config kv_transfer_config reasoning_parser "
        "logits_processors tensor_parallel_size pipeline_parallel_size distributed_executor_backend "
        "disable_custom_all_reduce worker_extension_cls "
        "disable_log_stats",
    ),
    RunnerHooks("vllm.engine.arg_utils", "EngineArgs", "prefix_match_unit", since="0.32.0"),
    RunnerHooks("vllm.v1.executor", "Executor", "get_class"),
    RunnerHooks(
        "vllm.v1.engine.core",
        "EngineCore",
        "scheduler structured_output_manager model_executor vllm_config batch_queue step_fn post_step "
        "reset_prefix_cache preprocess_add_request add_request abort_requests aborts_queue",
    ),
    RunnerHooks("vllm.v1.engine.core", "EngineCoreProc", "output_queue engines_running"),
    RunnerHooks("vllm.v1.executor.uniproc_executor", "UniProcExecutor", "driver_worker"),
    RunnerHooks("vllm.v1.worker.worker_base", "WorkerWrapperBase", "worker"),
)
SESSIONS = (
    RunnerHooks(
        "vllm.v1.core.sched.scheduler",
        "Scheduler",
        "schedule _preempt_request update_from_output has_requests requests running waiting max_num_running_reqs "
        "kv_cache_config kv_cache_manager",
    ),
    RunnerHooks("vllm.v1.core.sched.scheduler", "Scheduler", "max_num_active_reqs", since="0.31.0"),
    RunnerHooks("vllm.v1.core.sched.scheduler", "Scheduler", "num_hash_lookahead_tokens", since="0.33.0"),
    RunnerHooks("vllm.v1.core.sched.request_queue", "RequestQueue", "remove_requests prepend_request"),
    RunnerHooks("vllm.v1.structured_output", "StructuredOutputManager", "validate_tokens", since="0.30.0"),
    RunnerHooks("vllm.v1.structured_output.request", "StructuredOutputRequest", "_grammar"),
    RunnerHooks(
        "vllm.v1.request",
        "Request",
        "request_id structured_output_request use_structured_output num_preemptions is_prefill_chunk all_token_ids "
        "sampling_params",
    ),
    RunnerHooks(
        "vllm.v1.core.sched.output",
        "SchedulerOutput",
        "total_num_scheduled_tokens num_scheduled_tokens scheduled_new_reqs scheduled_cached_reqs "
        "scheduled_spec_decode_tokens pending_structured_output_tokens",
    ),
    RunnerHooks("vllm.v1.core.sched.output", "SchedulerOutput", "kv_cache_block_copies", since="0.32.0"),
    RunnerHooks("vllm.v1.core.sched.output", "NewRequestData", "req_id num_computed_tokens"),
    RunnerHooks("vllm.v1.core.sched.output", "CachedRequestData", "req_ids num_computed_tokens resumed_req_ids"),
    RunnerHooks("vllm.v1.engine", "EngineCoreOutput", OUTPUT_FIELDS),
    RunnerHooks(
        "vllm.v1.engine",
        "EngineCoreRequest",
        "request_id prompt_token_ids mm_features sampling_params pooling_params arrival_time lora_request "
        "cache_salt data_parallel_rank priority",
    ),
    RunnerHooks("vllm.sampling_params", "SamplingParams", SAMPLING_KEYS),
    RunnerHooks("vllm.sampling_params", "StructuredOutputsParams", "grammar _backend"),
)
RECORDERS = (
    RunnerHooks("vllm.v1.core.kv_cache_manager", "KVCacheManager", "block_pool get_block_ids get_computed_blocks"),
    RunnerHooks("vllm.v1.core.block_pool", "BlockPool", "get_num_free_blocks get_new_blocks"),
    RunnerHooks("vllm.v1.kv_cache_interface", "KVCacheConfig", "kv_cache_groups"),
    RunnerHooks("vllm.v1.kv_cache_interface", "KVCacheGroupSpec", "kv_cache_spec layer_names"),
    RunnerHooks("vllm.v1.kv_cache_interface", "MambaSpec", "mamba_type"),
    RunnerHooks("vllm.v1.outputs", "ModelRunnerOutput", "req_ids sampled_token_ids"),
    RunnerHooks("vllm.forward_context", "", "get_forward_context"),
    RunnerHooks("vllm.forward_context", "ForwardContext", "attn_metadata"),
    RunnerHooks("vllm.platforms.interface", "Platform", "_global_graph_pool", since="0.32.0"),
    RunnerHooks("vllm.forward_context", "ForwardContext", "slot_mapping", since="0.32.0"),
    RunnerHooks("vllm.config.speculative", "SpeculativeConfig", "method uses_draft_model", since="0.32.0"),
    RunnerHooks(
        "vllm.v1.spec_decode.llm_base_proposer",
        "SpecDecodeBaseProposer",
        "propose model speculative_config parallel_drafting_token_id _draft_attn_layer_names",
        runners=("v1",),
        since="0.32.0",
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.spec_decode.speculator",
        "DraftModelSpeculator",
        "propose model speculative_config draft_attn_layer_names draft_logits",
        runners=("v2",),
        since="0.32.0",
    ),
    RunnerHooks("vllm.v1.worker.gpu.spec_decode.rejection_sampler", "", "rejection_sample", runners=("v2",)),
    RunnerHooks(
        "vllm.v1.attention.backends.mamba_attn",
        "BaseMambaAttentionMetadata",
        "num_decodes num_prefills state_indices_tensor_d state_indices_tensor_p has_initial_states_p",
    ),
    RunnerHooks(
        "vllm.v1.attention.backends.gdn_attn",
        "GDNAttentionMetadata",
        "num_decodes num_prefills num_spec_decodes has_initial_state num_accepted_tokens spec_state_indices_tensor "
        "non_spec_state_indices_tensor spec_sequence_masks_cpu",
        since="0.32.0",
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu_model_runner",
        "GPUModelRunner",
        "_prepare_inputs _model_forward _mamba_bufs input_batch requests kv_cache_config",
        runners=("v1",),
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "_kv_block_zeroer", runners=("v1",), since="0.32.0"
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.model_runner", "GPUModelRunner", "kv_block_zeroer", runners=("v2",), since="0.32.0"
    ),
    RunnerHooks("vllm.v1.worker.utils", "KVBlockZeroer", "zero_block_ids", since="0.32.0"),
    RunnerHooks("vllm.v1.worker.mamba_utils", "MambaBuffers", "postprocess_align", runners=("v1",)),
    RunnerHooks(
        "vllm.v1.worker.mamba_utils",
        "MambaSpecDecodeGPUContext",
        "precopy_src_col_buf precopy_token_bias_buf",
        runners=("v1",),
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu_input_batch",
        "InputBatch",
        "req_ids num_reqs num_computed_tokens_cpu condense swap_states req_id_to_index",
        runners=("v1",),
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.model_runner",
        "GPUModelRunner",
        "prepare_attn model req_states kv_cache_config",
        runners=("v2",),
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.model_runner",
        "GPUModelRunner",
        "cudagraph_manager model_state input_buffers compilation_config",
        runners=("v2",),
        since="0.32.0",
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.cudagraph_utils",
        "CudaGraphManager",
        "needs_capture run_fullgraph run_pw_graph",
        runners=("v2",),
        since="0.32.0",
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.states", "RequestState", "max_num_reqs free_indices req_id_to_index", runners=("v2",)
    ),
    RunnerHooks(
        "vllm.v1.worker.gpu.input_batch",
        "InputBatch",
        "req_ids num_reqs query_start_loc seq_lens num_draft_tokens_per_req seq_lens_cpu_upper_bound",
        runners=("v2",),
    ),
)
TRANSFERS = (
    RunnerHooks("vllm.config", "KVTransferConfig", ""),
    RunnerHooks("vllm.distributed.kv_transfer.kv_transfer_state", "", "_KV_CONNECTOR_AGENT"),
    RunnerHooks("vllm.v1.core.sched.scheduler", "Scheduler", "connector _request_blocks_can_be_freed", since="0.32.0"),
)
CONTROLS = (
    RunnerHooks(
        "vllm.v1.engine.core",
        "EngineCoreProc",
        "pause_scheduler resume_scheduler sleep wake_up has_work _notify_idle_state_callbacks execute_dummy_batch "
        "collective_rpc compute_weight_checksums",
        since="0.32.0",
    ),
    RunnerHooks("vllm.v1.engine", "EngineCoreOutputs", "outputs scheduler_stats"),
    RunnerHooks("vllm.v1.metrics.stats", "SchedulerStats", "spec_decoding_stats"),
    RunnerHooks("vllm.v1.spec_decode.metrics", "SpecDecodingStats", "num_drafts num_draft_tokens num_accepted_tokens"),
    RunnerHooks("vllm.v1.executor", "Executor", "is_sleeping sleeping_tags", since="0.32.0"),
    RunnerHooks("vllm.v1.core.sched.scheduler", "Scheduler", "dynamic_sd_lookup num_spec_tokens", since="0.32.0"),
    RunnerHooks(
        "vllm.v1.worker.gpu_worker", "Worker", "reload_weights get_draft_model _sleep_mode_backend", since="0.32.0"
    ),
    RunnerHooks("vllm.model_executor.model_loader.weight_checksum", "", "compute_tensor_digests", since="0.32.0"),
    RunnerHooks("vllm.device_allocator.sleep_mode_backend", "SleepModeBackend", "suspend resume", since="0.32.0"),
)
# Used by `watched`, which observes vLLM's own tests.
WATCHED = (
    RunnerHooks(
        "vllm.v1.core.sched.scheduler",
        "Scheduler",
        "add_request finish_requests reset_prefix_cache vllm_config connector is_encoder_decoder "
        "num_sampled_tokens_per_step dcp_world_size pcp_world_size",
    ),
    RunnerHooks("vllm.v1.core.sched.output", "NewRequestData", "block_ids"),
    RunnerHooks("vllm.v1.core.sched.output", "CachedRequestData", "new_block_ids"),
    RunnerHooks("vllm.v1.request", "Request", "num_computed_tokens is_prefill_chunk"),
)
# Used on the simulated device only.
DEVICE = (
    RunnerHooks(
        "vllm.platforms.cpu",
        "CpuPlatform",
        "get_attn_backend_cls set_device check_and_update_config is_pin_memory_available import_kernels",
    ),
    RunnerHooks("vllm.v1.worker.gpu_worker", "", "init_worker_distributed_environment"),
    RunnerHooks(
        "vllm.v1.worker.gpu_worker",
        "Worker",
        "init_device determine_available_memory compile_or_warm_up_model _maybe_get_memory_pool_context "
        "_init_workspace_and_model_runner model_runner vllm_config rank local_rank distributed_init_method "
        "model_config cache_config",
    ),
    RunnerHooks(
        "vllm.v1.engine.core",
        "DPEngineCoreProc",
        "run_busy_loop _process_input_queue _process_engine_step _init_data_parallel pause_scheduler resume_scheduler",
        runners=("v2",),
        since="0.32.0",
    ),
    RunnerHooks("vllm.v1.attention.backend", "AttentionCGSupport", "ALWAYS"),
    RunnerHooks(
        "vllm.platforms.interface", "Platform", "support_static_graph_mode get_static_graph_wrapper_cls", since="0.32.0"
    ),
    RunnerHooks("vllm.compilation.cuda_graph", "CUDAGraphWrapper", ""),
    RunnerHooks("vllm.v1.worker.worker_base", "CompilationTimes", "language_model encoder"),
    RunnerHooks("vllm.utils.torch_utils", "", "set_random_seed"),
    RunnerHooks(
        "vllm._custom_ops", "", "cpu_attn_get_scheduler_metadata cpu_attention_with_kv_cache cpu_attn_reshape_and_cache"
    ),
    RunnerHooks("vllm.v1.attention.backends.registry", "", "AttentionBackendEnum register_backend"),
    RunnerHooks("vllm.v1.attention.backends.registry", "AttentionBackendEnum", "CUSTOM"),
    RunnerHooks("vllm.v1.attention.backends.cpu_attn", "CPUAttentionBackend", "get_name get_impl_cls get_builder_cls"),
    RunnerHooks(
        "vllm.v1.attention.backends.cpu_attn",
        "CPUAttentionBackendImpl",
        "forward do_kv_cache_update kv_cache_dtype scale sliding_window logits_soft_cap",
    ),
    RunnerHooks(
        "vllm.v1.attention.backends.cpu_attn",
        "CPUAttentionMetadataBuilder",
        "build num_heads num_kv_heads head_dim dtype window_size",
    ),
    RunnerHooks(
        "vllm.v1.attention.backends.cpu_attn",
        "CPUAttentionMetadata",
        "num_actual_tokens max_query_len query_start_loc max_seq_len seq_lens block_table slot_mapping "
        "scheduler_metadata causal",
    ),
)


def hooks_on(device: str, runner: RunnerName) -> list[RunnerHooks]:
    """Return the attributes of vLLM that hooks need on a device with a model runner."""
    every = (*ENGINES, *SESSIONS, *RECORDERS, *CONTROLS, *TRANSFERS, *(DEVICE if device == "sim" else ()))
    return [each for each in every if runner in each.runners]
