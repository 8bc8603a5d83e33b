"""Source locations in vLLM that reports add to a finding, by variable or output rule.

Variables are grouped by plane: what a judge compares together, such as `counts` or `control`.

A crash is looked up by the function that raised: its locations make the data that this function works on. A race is
looked up by a function that uses the memory: its locations decide when. Wrong outputs are also looked up by the
features of the trace (`ASKED`). The nearest location comes first; the cause may be elsewhere, and no verdict depends on
them. Function names are from vLLM 0.32.0 and 0.33.0.
"""

from workers.record.evidence import RACES, Site
from workers.targets.target import ASKED, Places
from workers.targets.vllm.request_features import CONTRACT_FUNCTIONS

_SCHEDULER = "vllm/v1/core/sched/scheduler.py"
_ASYNC_SCHEDULER = "vllm/v1/core/sched/async_scheduler.py"
_BLOCKS = "vllm/v1/core/kv_cache_manager.py"
_POOL = "vllm/v1/core/block_pool.py"
_STATES = "vllm/v1/core/single_type_kv_cache_manager.py"
_COORDINATOR = "vllm/v1/core/kv_cache_coordinator.py"
_OFFLOADS = "vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py"
_SIMPLE_STORE = "vllm/v1/simple_kv_offload/manager.py"
_CORE = "vllm/v1/engine/core.py"
_CONFIG = "vllm/config/vllm.py"
_GRAMMARS = "vllm/v1/structured_output/__init__.py"
_GRAMMAR = "vllm/v1/structured_output/backend_xgrammar.py"
_RUNNER = "vllm/v1/worker/gpu_model_runner.py"
_TABLES = "vllm/v1/worker/block_table.py"
_BATCH = "vllm/v1/worker/gpu_input_batch.py"
_PROPOSER = "vllm/v1/spec_decode/llm_base_proposer.py"
_LOOKUPS = "vllm/v1/spec_decode/ngram_proposer_gpu.py"
_SAMPLER = "vllm/v1/sample/sampler.py"
_REJECTION = "vllm/v1/sample/rejection_sampler.py"
_PROCESSORS = "vllm/v1/sample/logits_processor/builtin.py"
_WORKER = "vllm/v1/worker/gpu_worker.py"
_LOADER = "vllm/v1/worker/kv_connector_model_runner_mixin.py"
_SECOND = "vllm/v1/worker/gpu"
_MAMBA_METADATA = "vllm/v1/attention/backends/mamba_attn.py"
_GDN_METADATA = "vllm/v1/attention/backends/gdn_attn.py"


def _at(**functions: str) -> tuple[Site, ...]:
    return tuple(Site(function=function, file=file) for function, file in functions.items())


_REQUESTS = _at(update_from_output=_SCHEDULER, finish_requests=_SCHEDULER)
_COUNTS = _at(_update_after_schedule=_SCHEDULER, update_from_output=_SCHEDULER)
_CACHED = _at(get_computed_blocks=_BLOCKS, cache_full_blocks=_POOL)
_LOADS = _at(_update_from_kv_xfer_finished=_SCHEDULER, _connector_finished=_SCHEDULER)
# Request data that the scheduler sends to the runner: tokens, number of computed tokens, resumed after preemption.
_REQUEST_DATA = _at(_make_cached_request_data=_SCHEDULER, _preempt_request=_SCHEDULER)
# Slots for tokens after the scheduled ones (lookahead).
_LOOKAHEAD_SLOTS = _at(allocate_slots=_BLOCKS, schedule=_SCHEDULER, num_lookahead_tokens=_CONFIG)
# Which batch rows are decodes, which are prefills, and which prefills start without a recurrent state.
_ROWS_WITH_STATES, _ROWS_WITH_GATES = _at(_compute_common_metadata=_MAMBA_METADATA), _at(build=_GDN_METADATA)
# Blocks that a step copies to or from the store, and the copies that it waits for first.
_JOBS = _at(build_connector_meta=_OFFLOADS, _build_store_jobs=_OFFLOADS)
_SCHEDULER_PLACES: Places = {
    # Settings that vLLM derives from an engine's configuration.
    ("crash", "_made"): _at(__post_init__=_CONFIG),
    # A grammar that does not compile fails only its own request.
    ("crash", "_create_grammar"): _at(_check_grammar_completion="vllm/v1/structured_output/request.py"),
    ("crash", "schedule"): _at(get_computed_blocks=_BLOCKS, _preempt_request=_SCHEDULER),
    ("crash", "get_new_blocks"): _at(get_num_blocks_to_allocate=_STATES, allocate_slots=_BLOCKS),
    ("crash", "_handle_invalid_blocks"): _LOADS,
    # The prefix cache is reset only while no block is in use, by the blocks' reference counts.
    ("crash", "reset_prefix_cache"): _at(reset_prefix_cache=_POOL, touch=_POOL, free_blocks=_POOL),
    ("crash", "_reset_caches"): _at(reset_prefix_cache=_SCHEDULER, _finish_pause=_CORE),
    ("crash", "apply_grammar_bitmask"): _at(grammar_bitmask=_GRAMMARS, update_draft_token_ids_in_output=_SCHEDULER),
    ("counts", "scheduled_computed"): _COUNTS,
    ("liveness", "waiting"): _at(schedule=_SCHEDULER, allocate_slots=_BLOCKS),
    ("liveness", "admitted"): _at(schedule=_SCHEDULER, __lt__="vllm/v1/request.py"),
    ("efficiency", "drafts"): _at(schedule=_SCHEDULER, _update_after_schedule=_ASYNC_SCHEDULER),
    ("efficiency", "accepted"): _at(update_from_output=_SCHEDULER),
    ("efficiency", "hit_tokens"): _at(
        get_computed_blocks=_BLOCKS, find_longest_cache_hit=_STATES, cache_full_blocks=_POOL
    ),
    **dict.fromkeys(
        [("efficiency", what) for what in ("preemptions", "recomputed_tokens", "steps")],
        _at(schedule=_SCHEDULER, allocate_slots=_BLOCKS),
    ),
    # Planned draft tokens are dropped if the drafter proposed none.
    ("inputs", "drafts"): _at(schedule=_SCHEDULER, _preempt_request=_SCHEDULER, _handle_stopped_request=_SCHEDULER),
    ("blocks", "tables"): _at(allocate_slots=_BLOCKS, get_new_blocks=_POOL),
    ("blocks", "held"): _at(allocate_slots=_BLOCKS),
    ("blocks", "states"): _at(allocate_new_blocks=_STATES),
    # Blocks before a sliding window are freed as new ones are allocated; a hit ends where every KV-cache group has one.
    ("blocks", "window_tables"): _at(allocate_slots=_BLOCKS, find_longest_cache_hit=_STATES),
    ("blocks", "hits"): _at(reachable_block_mask=_STATES, find_longest_cache_hit=_STATES, cache_full_blocks=_POOL),
    ("kv", "attended"): _CACHED,
    # A prefix-cache hit is as long as every KV-cache group allows, including the recurrent state at its end.
    ("kv", "first_state"): _at(
        find_longest_cache_hit=_COORDINATOR, get_computed_blocks_for_connector=_BLOCKS, schedule=_SCHEDULER
    ),
    ("kv", "stored"): _at(_build_store_jobs=_OFFLOADS, storable_chunks=_OFFLOADS, build_connector_meta=_OFFLOADS),
    ("books", "leaks"): _at(
        _free_request=_SCHEDULER,
        _free_blocks=_SCHEDULER,
        has_pending_push_work=_OFFLOADS,
        touch=_POOL,
        free_blocks=_POOL,
    ),
    **dict.fromkeys(
        [("books", f"counted_{what}") for what in ("rows", "drafts", "accepted")],
        _at(update_from_output=_SCHEDULER, make_spec_decoding_stats=_SCHEDULER),
    ),
    ("inputs", "goes_on"): _ROWS_WITH_STATES + _ROWS_WITH_GATES,
    ("transfers", "sent"): _at(_connector_finished=_SCHEDULER, _preempt_request=_SCHEDULER),
    ("transfers", "read"): _at(_connector_finished=_SCHEDULER, _free_blocks=_SCHEDULER),
    ("transfers", "stored"): _at(_classify_store_candidate=_SIMPLE_STORE, build_connector_meta=_SIMPLE_STORE),
    ("transfers", "offered"): _at(_build_store_jobs=_OFFLOADS, storable_chunks=_OFFLOADS, advance_stored_idx=_OFFLOADS),
    ("transfers", "blocks"): _LOADS,
    ("transfers", "ends"): _LOADS,
    # An error that no load explains: a grammar rejects the sampled token.
    ("transfers", "failures"): _at(
        update_from_output=_SCHEDULER,
        accept_tokens=_GRAMMAR,
        grammar_bitmask=_GRAMMARS,
        _handle_invalid_blocks=_SCHEDULER,
    ),
    ("transfers", "free"): _at(_free_blocks=_SCHEDULER, _connector_finished=_SCHEDULER),
    ("transfers", "preempted"): _at(schedule=_SCHEDULER, _request_blocks_can_be_freed=_SCHEDULER),
    ("transfers", "registered"): _at(_update_waiting_for_remote_kv=_SCHEDULER, cache_full_blocks=_POOL),
    ("transfers", "written"): _at(allocate_slots=_BLOCKS, _connector_finished=_SCHEDULER),
    ("control", "paused"): _at(schedule=_SCHEDULER, pause_scheduler=_CORE),
    ("control", "era"): _at(reset_prefix_cache=_SCHEDULER) + _at(reset_prefix_cache=_POOL),
    ("drafts", "draft_slots"): _LOOKAHEAD_SLOTS,
    ("control", "weights"): _at(reload_weights=_WORKER),
    ("control", "asleep"): _at(wake_up=_CORE),
    ("control", "drafter_weights"): _at(_get_sleep_parameters=_WORKER, sleep=_WORKER, wake_up=_WORKER),
    ("contracts", "answer"): _REQUESTS,
    ("contracts", "delivery"): _REQUESTS,
    ("contracts", "abort"): _REQUESTS,
    ("contracts", "name"): _REQUESTS,
    **{("contracts", contract): _at(**functions) for contract, functions in CONTRACT_FUNCTIONS.items()},
    ("contracts", "grammar"): _at(grammar_bitmask=_GRAMMARS, update_from_output=_SCHEDULER),
}
_FEATURE_PLACES: Places = {
    (ASKED, "grammar"): _at(grammar_bitmask=_GRAMMARS, validate_tokens=_GRAMMAR, update_draft_token_ids=_SCHEDULER),
    # Results that a step computed after lost blocks are discarded.
    (ASKED, "transfer"): _at(update_from_output=_SCHEDULER, _handle_invalid_blocks=_SCHEDULER),
    (ASKED, "recurrent_layers gated_delta"): _ROWS_WITH_GATES,
    # After which tokens recurrent states exist, and which of them are kept.
    (ASKED, "recurrent_cache align"): _at(_mamba_block_aligned_split=_SCHEDULER, cache_blocks=_STATES),
}
_RACE_PLACES: Places = {
    (RACES, "transfer_async"): _JOBS,
    (RACES, "zero_block_ids"): _at(allocate_external_computed_blocks=_STATES, take_new_block_ids=_STATES),
}
_LOGPROBS = _at(gather_logprobs=_SAMPLER, _get_logprobs_tensors=_REJECTION)
_PROCESSED = _at(apply_logits_processors=_SAMPLER) + _at(apply_logits_processors=_REJECTION)
_MASKS = _at(apply_top_k_top_p="vllm/v1/sample/ops/topk_topp_sampler.py", apply_sampling_constraints=_REJECTION)
_SKIPPED_HITS = _at(get_skip_reading_prefix_cache="vllm/v1/request.py")
_PROMPT_LOGPROBS = (("contracts", "prompt_logprobs"), ("logits", "prompt_logprobs"))
_DRAFTS = ("proposed", "passes", "draft_cache")
_DRAFTER_INPUTS = ("input_ids", "positions", "tables")
# Earlier output tokens: how they reach the sampling metadata and replace placeholders.
_OUTPUTS = _at(_sample=_RUNNER, update_async_output_token_ids=_BATCH, _make_cached_request_data=_SCHEDULER)
# Bad words and generators, which move with their batch rows.
_ENTRIES = _at(swap_states=_BATCH, swap_dict_values="vllm/utils/collection_utils.py")
_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
FIRST_RUNNER: Places = {
    **_SCHEDULER_PLACES,
    **_RACE_PLACES,
    # Host buffers are overwritten once they have been copied to the device.
    (RACES, "copy_to_gpu"): _at(synchronize_input_prep=_RUNNER),
    **dict.fromkeys([(ASKED, name) for name in ("no_repeats", *_PENALTIES)], _OUTPUTS),
    (ASKED, "bad_words"): _OUTPUTS + _ENTRIES,
    **_FEATURE_PLACES,
    (ASKED, "layers hybrid"): _ROWS_WITH_STATES + _at(_update_states_after_model_execute=_RUNNER),
    (ASKED, "session"): _at(_update_request_as_session=_SCHEDULER, _update_streaming_request=_RUNNER),
    (ASKED, "seed"): _ENTRIES,
    ("crash", "update_req_spec_token_ids"): _at(schedule=_SCHEDULER, update_draft_token_ids=_SCHEDULER),
    ("inputs", "inputs"): _at(execute_model=_RUNNER),
    ("inputs", "rows"): _at(_update_states=_RUNNER),
    **dict.fromkeys(
        [("inputs", name) for name in ("slots", "window_slots")],
        _at(_get_slot_mappings=_RUNNER, compute_slot_mapping=_TABLES),
    ),
    ("inputs", "seq_lens"): _at(_prepare_inputs=_RUNNER),
    ("counts", "bounds"): _at(_prepare_inputs=_RUNNER),
    ("inputs", "kept"): _at(_prepare_inputs=_RUNNER, _update_states_after_model_execute=_RUNNER),
    ("inputs", "copied"): _at(preprocess_mamba="vllm/v1/worker/mamba_utils.py", _prepare_inputs=_RUNNER),
    # Wrong tokens after correct model inputs: the sampling metadata of a row, and the sampler.
    ("tokens", "tokens"): _at(
        _make_sampling_metadata=_BATCH,
        sample=_SAMPLER,
        rejection_sample=_REJECTION,
        _sample=_RUNNER,
        _bookkeeping_sync=_RUNNER,
        process_dict_updates=_PROCESSORS,
    ),
    ("liveness", "progress"): _at(schedule=_SCHEDULER, allocate_slots=_BLOCKS, kv_connector_no_forward=_LOADER),
    ("crash", "_update_states"): _REQUEST_DATA,
    ("crash", "_prepare_inputs"): _at(schedule=_SCHEDULER) + _REQUEST_DATA,
    ("crash", "_bookkeeping_sync"): _at(schedule=_SCHEDULER, update_from_output=_SCHEDULER),
    ("crash", "get_token_bin_counts_and_mask"): _at(_make_sampling_metadata=_BATCH) + _REQUEST_DATA,
    ("crash", "_update_request_with_output"): _at(parse_output=_REJECTION, _bookkeeping_sync=_RUNNER),
    ("crash", "embedding"): _at(_prepare_input_ids=_RUNNER) + _REQUEST_DATA,
    ("crash", "update_connector_output"): _at(_get_kv_connector_output=_LOADER, finalize_kv_connector=_LOADER),
    ("crash", "update_from_output"): _at(_bookkeeping_sync=_RUNNER, _get_prompt_logprobs_dict=_RUNNER),
    # Stores of a preempted request are handled before its blocks are overwritten.
    ("kv", "attended"): _CACHED + _at(execute_model=_RUNNER),
    **dict.fromkeys([("drafts", name) for name in _DRAFTS], _at(propose=_PROPOSER)),
    **dict.fromkeys([("drafts", f"draft_{name}") for name in _DRAFTER_INPUTS], _at(set_inputs_first_pass=_PROPOSER)),
    ("drafts", "verified"): _at(_prepare_input_ids=_RUNNER, _update_states=_RUNNER),
    ("drafts", "looked_up"): _at(update_ngram_gpu_tensors_incremental=_LOOKUPS, update_token_ids_ngram=_LOOKUPS)
    + _at(propose="vllm/v1/spec_decode/ngram_proposer.py"),
    ("drafts", "draft_cache"): _at(propose=_PROPOSER, find_longest_cache_hit=_STATES),
    ("counts", "mirror_computed"): _at(_update_states=_RUNNER),
    ("inputs", "sampled"): _at(_bookkeeping_sync=_RUNNER, sample_tokens=_RUNNER),
    # Batch rows keep their tokens as they move; the scheduler also sends the newest ones.
    ("inputs", "input_ids"): _at(_update_states=_RUNNER, condense=_BATCH, swap_states=_BATCH) + _REQUEST_DATA,
    ("inputs", "positions"): _at(_update_states=_RUNNER) + _REQUEST_DATA,
    ("drafts", "draft_seq_lens"): _at(_input_fits_in_drafter=_RUNNER),
    ("drafts", "draft_bounds"): _at(_update_positions_dependent_metadata=_PROPOSER),
    **dict.fromkeys(_PROMPT_LOGPROBS, _at(_get_prompt_logprobs_dict=_RUNNER) + _SKIPPED_HITS),
    **dict.fromkeys([("contracts", name) for name in ("logprobs", "logprob_ranks", "logprob_sum")], _LOGPROBS),
    ("contracts", "same_context"): _at(_get_prompt_logprobs_dict=_RUNNER) + _LOGPROBS,
    ("contracts", "no_repeats"): _at(apply="vllm/v1/sample/logits_processor/__init__.py") + _PROCESSED + _OUTPUTS,
    ("contracts", "logprob_tokens"): _at(gather_specific_token_logprobs=_SAMPLER),
    ("logits", "logprobs"): _LOGPROBS + _at(_sample=_RUNNER),
    ("contracts", "min_tokens"): _at(
        apply=_PROCESSORS, apply_with_spec_decode=_PROCESSORS, apply_logits_processors=_REJECTION
    ),
    ("contracts", "grammar"): _at(
        grammar_bitmask=_GRAMMARS,
        update_from_output=_SCHEDULER,
        apply_grammar_bitmask="vllm/v1/structured_output/utils.py",
    ),
    ("contracts", "logit_bias"): _at(apply=_PROCESSORS),
    ("contracts", "allowed_tokens"): _PROCESSED,
    ("contracts", "bad_words"): _PROCESSED + _OUTPUTS + _ENTRIES,
    ("contracts", "penalties"): _at(apply_penalties=_SAMPLER) + _at(apply_penalties=_REJECTION) + _OUTPUTS,
    ("contracts", "greedy"): _at(sample=_SAMPLER, rejection_sample=_REJECTION),
    **dict.fromkeys([("contracts", name) for name in ("top_k", "top_p")], _MASKS),
    ("contracts", "min_p"): _at(apply=_PROCESSORS),
}
_SECOND_LOGPROBS = _at(
    compute_topk_scores=f"{_SECOND}/sample/logprob.py",
    _get_logprobs_tensors=f"{_SECOND}/spec_decode/rejection_sampler.py",
)
_SECOND_PROMPT_LOGPROBS = _at(compute_prompt_logprobs=f"{_SECOND}/sample/prompt_logprob.py") + _SKIPPED_HITS
_SECOND_LOADER = f"{_SECOND}/kv_connector.py"
_SECOND_BIASES = _at(apply_logit_bias=f"{_SECOND}/sample/logit_bias.py")
_SECOND_SAMPLER = _at(apply_sampling_params=f"{_SECOND}/sample/sampler.py")
_SECOND_INPUTS = (
    _at(add_requests=f"{_SECOND}/model_runner.py", prepare_inputs=f"{_SECOND}/model_runner.py") + _REQUEST_DATA
)
_SECOND_STEP = _at(prepare_inputs=f"{_SECOND}/model_runner.py")
_SECOND_STATES = _at(prepare_attn=f"{_SECOND}/model_runner.py", postprocess_sampled=f"{_SECOND}/model_runner.py")
_SECOND_AR = f"{_SECOND}/spec_decode/target_dependent_ar/speculator.py"
_SECOND_DRAFTER = _at(_copy_request_inputs=f"{_SECOND}/spec_decode/speculator.py")
# Sampler state of a request, by the file that stores it.
_SAMPLER_STATE = {
    "sample/states.py": ("temperature", "top_k", "top_p", "min_p", "seed", "num_logprobs"),
    "sample/penalties.py": (*_PENALTIES, "output_counts", "prompt_tokens"),
    "sample/logprob.py": ("logprob_tokens",),
    "sample/logit_bias.py": ("allowed_tokens", "logit_bias", "min_tokens", "stop"),
    "sample/bad_words.py": ("bad_words",),
    "states.py": ("tokens", "num_prompt_tokens"),
}
_SAMPLED = _at(postprocess_sampled=f"{_SECOND}/model_runner.py")
SECOND_RUNNER: Places = {
    **_SCHEDULER_PLACES,
    **_RACE_PLACES,
    **_FEATURE_PLACES,
    (ASKED, "layers hybrid"): _ROWS_WITH_STATES,
    (ASKED, "session"): _at(_update_request_as_session=_SCHEDULER),
    (ASKED, "bad_words"): _at(apply_bad_words=f"{_SECOND}/sample/bad_words.py"),
    **dict.fromkeys([(ASKED, name) for name in _PENALTIES], _at(apply_penalties=f"{_SECOND}/sample/penalties.py")),
    **dict.fromkeys([(ASKED, name) for name in ("min_tokens", "logit_bias", "allowed_tokens")], _SECOND_BIASES),
    ("tokens", "tokens"): _at(
        add_request=f"{_SECOND}/sample/states.py",
        sample=f"{_SECOND}/sample/sampler.py",
        _verify=f"{_SECOND}/spec_decode/rejection_sampler.py",
    ),
    **dict.fromkeys([("drafts", name) for name in _DRAFTS], _at(propose=f"{_SECOND}/spec_decode/speculator.py")),
    **{
        ("sampler", name): _at(add_request=f"{_SECOND}/{file}")
        + (_SAMPLED if name in ("tokens", "output_counts") else ())
        for file, names in _SAMPLER_STATE.items()
        for name in names
    },
    ("drafts", "draft_bounds"): _at(_build_attn_metadata=f"{_SECOND}/spec_decode/speculator.py"),
    ("inputs", "sampled"): _at(sample_tokens=f"{_SECOND}/model_runner.py"),
    ("crash", "update_connector_output"): _at(pre_forward=_SECOND_LOADER, finish_forward=_SECOND_LOADER),
    **dict.fromkeys([("inputs", name) for name in ("input_ids", "positions")], _SECOND_INPUTS),
    **dict.fromkeys([("inputs", name) for name in ("inputs", "rows", "seq_lens")], _SECOND_STEP),
    **dict.fromkeys(
        [("inputs", name) for name in ("slots", "window_slots")],
        _at(compute_slot_mappings=f"{_SECOND}/block_table.py"),
    ),
    ("counts", "bounds"): _SECOND_STEP,
    **dict.fromkeys([("inputs", name) for name in ("kept", "copied")], _SECOND_STATES),
    ("counts", "mirror_computed"): _at(postprocess_num_computed_tokens=f"{_SECOND}/model_runner.py"),
    ("drafts", "verified"): _SECOND_STEP,
    **dict.fromkeys([("drafts", f"draft_{name}") for name in (*_DRAFTER_INPUTS, "seq_lens")], _SECOND_DRAFTER),
    ("drafts", "hidden_states"): _at(
        propose=_SECOND_AR, _prefill=_SECOND_AR, sample_tokens=f"{_SECOND}/model_runner.py"
    ),
    ("drafts", "draft_logits"): _at(
        _verify=f"{_SECOND}/spec_decode/rejection_sampler.py",
        sample_draft=f"{_SECOND}/spec_decode/speculator.py",
        gumbel_sample=f"{_SECOND}/sample/gumbel.py",
    ),
    ("liveness", "progress"): _at(schedule=_SCHEDULER, allocate_slots=_BLOCKS),
    **dict.fromkeys(_PROMPT_LOGPROBS, _SECOND_PROMPT_LOGPROBS),
    **dict.fromkeys([("contracts", name) for name in ("logprobs", "logprob_ranks", "logprob_sum")], _SECOND_LOGPROBS),
    ("contracts", "logprob_tokens"): _SECOND_LOGPROBS,
    ("contracts", "same_context"): _SECOND_PROMPT_LOGPROBS + _SECOND_LOGPROBS,
    ("logits", "logprobs"): _SECOND_LOGPROBS,
    **dict.fromkeys([("contracts", name) for name in ("min_tokens", "logit_bias", "allowed_tokens")], _SECOND_BIASES),
    ("contracts", "bad_words"): _at(apply_bad_words=f"{_SECOND}/sample/bad_words.py"),
    ("contracts", "penalties"): _at(apply_penalties=f"{_SECOND}/sample/penalties.py"),
    ("contracts", "grammar"): _at(apply_grammar_bitmask=f"{_SECOND}/structured_outputs.py", grammar_bitmask=_GRAMMARS),
    **dict.fromkeys([("contracts", name) for name in ("greedy", "top_k", "top_p")], _SECOND_SAMPLER),
    ("contracts", "min_p"): _at(apply_min_p=f"{_SECOND}/sample/min_p.py"),
}
