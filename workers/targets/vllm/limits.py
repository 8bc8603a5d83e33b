"""Capabilities of vLLM with each model runner; limits of engine specs and trace events.

A limit returns an `Excess` (what is refused, and what is allowed), or None.
"""

from dataclasses import replace

from scenarios.capabilities import Capabilities, Excess, ExcludedBy, KeyAtMost, Limits, OneOf
from scenarios.events import CONTROL_EVENTS, AnyEvent, LoadWeights, Preempt, SetK
from scenarios.probes import CONTROL_PROBES, HANDOFF_PROBES, TRANSFER_PROBES
from scenarios.spec import EngineSpec
from workers.targets.vllm.connector_limits import (
    at_most_one_connector,
    hybrid_store_is_asynchronous_and_cached,
    no_cache_clearing_with_connector,
    no_connector_with_sliding_windows,
    no_control_events_with_handoff,
    no_cuda_graphs_with_connector,
    no_disturbances_of_offloading,
    no_dummy_step_with_connector,
    no_offloading_of_hybrid_models,
    producer_pool_fits_max_model_len,
    simple_connector_needs_prefix_cache,
    simple_connector_needs_streams,
)
from workers.targets.vllm.engine_sizes import graph_seqs_max
from workers.targets.vllm.rank_limits import (
    at_most_one_rank_per_gpu,
    drafter_supports_pipeline_ranks,
    experts_beside_other_features,
    no_sleep_of_several_ranks,
    one_rank_beside_other_features,
)
from workers.targets.vllm.request_features import FIRST, SECOND
from workers.targets.vllm.situations import data_ranks, pipeline_ranks, tensor_ranks, user_logits_processor

# Vocabulary sizes that have a model; a smaller one has fewer tokens than the logprobs that a request may ask for.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 128, 130)
# Values of `match_tokens`: prefix-cache hits end at multiples of it inside a block of 32 tokens; 0: at block ends only.
MATCHES = (0, 8, 16)
_HYBRID_DRAFTERS = ("eagle", "ngram_gpu", "ngram")
_WINDOW_DRAFTERS = ("eagle", "eagle3", "draft_model", "ngram_gpu", "ngram")


def reasoning_end_is_in_vocabulary(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the token id that ends reasoning is less than the vocabulary size."""
    if spec.reasoning_end is None or spec.reasoning_end < spec.vocab_size:
        return None
    last = spec.vocab_size - 1
    fixed = spec.model_copy(update={"reasoning_end": last})
    return Excess("reasoning_end", spec.reasoning_end, f"vocab_size allows 0 to {last}", fixed)


def no_logits_processor_with_drafts(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: no custom logits processor with speculative decoding."""
    if not spec.logits_processor or not spec.num_speculative_tokens:
        return None
    fixed = spec.model_copy(update={"logits_processor": False})
    return Excess("logits_processor", True, "with drafts False is allowed", fixed, "vLLM refuses it with drafts")


def dflash_needs_token_budget(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with dflash, a step fits one token, its drafts, and one more slot per draft."""
    least = 1 + 2 * spec.num_speculative_tokens
    if spec.drafter != "dflash" or spec.num_speculative_tokens == 0 or spec.max_num_batched_tokens >= least:
        return None
    fixed = spec.model_copy(update={"max_num_batched_tokens": least})
    reason = "vLLM schedules a decode only if its token, its drafts and one lookahead slot per draft fit"
    return Excess("max_num_batched_tokens", spec.max_num_batched_tokens, f"at least {least} is allowed", fixed, reason)


def drafter_supports_hybrid_model(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a hybrid target model supports only the drafters eagle, ngram_gpu and ngram.

    The others have a KV-cache group of their own, or read hidden states of several target layers.
    """
    if spec.layers != "hybrid" or not spec.num_speculative_tokens or spec.drafter in _HYBRID_DRAFTERS:
        return None
    allowed = f"allowed with layers hybrid are {', '.join(_HYBRID_DRAFTERS)}"
    fixed, reason = spec.model_copy(update={"layers": "attention"}), "the hybrid model does not support other drafters"
    return Excess("drafter", spec.drafter, allowed, fixed, reason)


def recurrent_layers_need_hybrid_model(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: spec key `recurrent_layers` needs a hybrid model."""
    if spec.layers == "hybrid" or spec.recurrent_layers == "short_conv":
        return None
    fixed = spec.model_copy(update={"recurrent_layers": "short_conv"})
    return Excess("recurrent_layers", spec.recurrent_layers, f"with layers {spec.layers} short_conv is allowed", fixed)


def drafter_supports_sliding_windows(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a sliding-window target model supports all drafters except mtp and dflash.

    These are part of the target, or read hidden states of all layers of the model with full attention.
    """
    if spec.layers != "windows" or not spec.num_speculative_tokens or spec.drafter in _WINDOW_DRAFTERS:
        return None
    allowed = f"allowed with layers windows are {', '.join(_WINDOW_DRAFTERS)}"
    fixed, reason = spec.model_copy(update={"layers": "attention"}), "other drafters need another model"
    return Excess("drafter", spec.drafter, allowed, fixed, reason)


def window_keys_need_window_layers(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: spec keys `window` and `window_heads` need sliding-window layers."""
    for key in ("window", "window_heads") if spec.layers != "windows" else ():
        seen, default = getattr(spec, key), EngineSpec.model_fields[key].default
        if seen != default:
            fixed = spec.model_copy(update={key: default})
            return Excess(key, seen, f"with layers {spec.layers} {default} is allowed", fixed)
    return None


def match_tokens_need_hybrid_prefix_cache(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: `match_tokens` (hits inside a block) needs a hybrid model with a prefix cache.

    Offloading, a handoff and drafter eagle exclude it.
    """
    if not spec.match_tokens:
        return None
    fixed = spec.model_copy(update={"match_tokens": 0})
    if spec.layers != "hybrid" or not spec.prefix_cache:
        return Excess("match_tokens", spec.match_tokens, "without layers hybrid and prefix_cache 0 is allowed", fixed)
    drafts = spec.num_speculative_tokens > 0 and spec.drafter == "eagle"
    if drafts or spec.offloading is not None or spec.handoff is not None:
        reason = "the content of their partly filled blocks is not observed"
        allowed = "with offloading, handoff or drafter eagle 0 is allowed"
        return Excess("match_tokens", spec.match_tokens, allowed, fixed, reason)
    return None


def no_set_k_with_ngram_gpu(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no `set_k` event (another number of draft tokens) with drafter ngram_gpu."""
    if not isinstance(event, SetK) or spec.drafter != "ngram_gpu":
        return None
    return Excess("k", event.k, "not allowed with drafter ngram_gpu", None, "it asserts a constant number")


def no_load_weights_with_mtp(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no `load_weights` event with drafter mtp, whose target has one weight version."""
    if not isinstance(event, LoadWeights) or spec.drafter != "mtp":
        return None
    allowed = "not allowed with drafter mtp"
    return Excess("version", event.version, allowed, None, "its model has one version of its weights")


# Holds for vLLM's CPU kernels only.
_NO_DRAFTS_WITH_HYBRID = ExcludedBy(
    "num_speculative_tokens",
    other=("layers", "hybrid"),
    fallback="attention",
    reason="vLLM's CPU kernels cannot roll a recurrent state back to before a rejected draft",
)
# A request of max_model_len tokens fits into the block pool, and no prefill chunk is longer than such a request.
_POOL_FITS_MODEL = (
    KeyAtMost("max_model_len", lambda spec: spec.num_blocks * spec.block_size, "num_blocks x block_size"),
    KeyAtMost("long_prefill_token_threshold", lambda spec: spec.max_model_len, "max_model_len"),
    KeyAtMost("max_num_seqs", graph_seqs_max, "num_blocks less the state blocks of graphs"),
)

FIRST_RUNNER = Capabilities(
    events=(
        *("abort", "preempt", "stall", "reset_prefix_cache", "disturb_transfer", "set_k", "dummy_step", "end_session"),
        *CONTROL_EVENTS,
    ),
    hooks=("before_schedule",),
    # Before it processes a step's results, the server handles aborts that arrived during the step, and no other event.
    hooks_by_event={"abort": ("before_process",)},
    features=FIRST.names,
    spec={
        "layers": ("attention", "hybrid", "windows"),
        "recurrent_layers": (),
        "window": (),
        "window_heads": (),
        "depth": (2, 1),
        "policy": (),
        "prefix_cache": (),
        "match_tokens": MATCHES,
        "recurrent_cache": (),
        "logprobs_mode": (),
        "sampling": ("standard",),
        "vocab_size": VOCABULARIES,
        "num_speculative_tokens": (),
        "max_num_seqs": (),
        "max_num_batched_tokens": (),
        "long_prefill_token_threshold": (),
        "max_model_len": (),
        "block_size": (32,),
        "num_blocks": (),
        "drafter": ("eagle", "eagle3", "draft_model", "mtp", "dflash", "ngram_gpu", "ngram"),
        "drafter_quality": (),
        "transfer": (),
        "offloading": (),
        "handoff": (),
        "decodes_first": (),
        "reasoning_end": (),
        "logits_processor": (),
        "draft_sampling": (),
        "graphs": (),
    },
    # The engine creates its own streams; a schedule orders their tasks.
    devices={"sim": ("streams",), "cpu": (), "cuda": ()},
    policies=("eager", "lazy", "random"),
    probes=(
        "admit",
        "resume",
        "discard",
        "discard_while_drafting",
        "preemption",
        "preemption_by_blocks",
        "preemption_in_flight",
        "abort",
        "abort_in_flight",
        "condense",
        "condense_in_flight",
        "reorder",
        "stall",
        "empty_step",
        "cache_reset",
        "name_reused",
        "session_part",
        "session_part_queued",
        "grammar_wait",
        "grammar_drafts",
        "grammar_cut",
        "stop_word",
        *TRANSFER_PROBES,
        *HANDOFF_PROBES,
        "dummy_step",
        "k_change",
        *CONTROL_PROBES,
    ),
    limits=Limits(
        features=FIRST.lacks,
        events=(
            OneOf(Preempt, "mode", ("deliver",), "modes"),
            *FIRST.limits,
            no_set_k_with_ngram_gpu,
            no_control_events_with_handoff,
            no_cache_clearing_with_connector,
            no_disturbances_of_offloading,
            no_load_weights_with_mtp,
        ),
        spec=(
            no_logits_processor_with_drafts,
            drafter_supports_hybrid_model,
            recurrent_layers_need_hybrid_model,
            drafter_supports_sliding_windows,
            window_keys_need_window_layers,
            no_connector_with_sliding_windows,
            match_tokens_need_hybrid_prefix_cache,
            no_offloading_of_hybrid_models,
            hybrid_store_is_asynchronous_and_cached,
            at_most_one_connector,
            no_cuda_graphs_with_connector,
            producer_pool_fits_max_model_len,
            simple_connector_needs_prefix_cache,
            dflash_needs_token_budget,
            reasoning_end_is_in_vocabulary,
            *_POOL_FITS_MODEL,
        ),
    ),
    situations=(user_logits_processor,),
    planes=("races", "blocks", "books", "counts", "inputs", "kv", "transfers"),
    # Rounding differs between a row alone and in a batch. Among 420 positions of a sliding-window model, the gap
    # between two of the five highest logits changed by more than 9e-5 at 1 in 100, and by 2.2e-4 at one.
    logit_margin=1e-3,
    words_from_prompt=False,
    is_costly=True,
)

SECOND_RUNNER = replace(
    FIRST_RUNNER,
    # The second runner supports only devices with streams.
    devices={"sim": ("streams",), "cuda": ()},
    # It orders batch rows by the scheduler's plan, decodes before prefills, and has another interface for custom logits
    # processors.
    spec={
        **{key: each for key, each in FIRST_RUNNER.spec.items() if key not in ("decodes_first", "logits_processor")},
        "layers": ("attention", "hybrid", "windows", "experts"),
        "tensor_ranks": (1, 2),
        "pipeline_ranks": (1, 2),
        "data_ranks": (1, 2),
    },
    features=SECOND.names,
    situations=(tensor_ranks, pipeline_ranks, data_ranks),
    planes=(*FIRST_RUNNER.planes, "sampler", "ranks"),
    limits=replace(
        FIRST_RUNNER.limits,
        features=SECOND.lacks,
        events=(*FIRST_RUNNER.limits.events, no_dummy_step_with_connector, no_sleep_of_several_ranks),
        spec=(
            one_rank_beside_other_features,
            experts_beside_other_features,
            drafter_supports_pipeline_ranks,
            *(each for each in FIRST_RUNNER.limits.spec if each is not no_logits_processor_with_drafts),
        ),
    ),
)


def on_a_cpu(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities on a CPU, without CUDA graphs, gated delta nets and streams.

    Several ranks are processes there, which the first runner supports as well.
    """
    on_a_device = (_NO_DRAFTS_WITH_HYBRID, simple_connector_needs_streams, one_rank_beside_other_features)
    limits = replace(
        capabilities.limits,
        spec=(*capabilities.limits.spec, *on_a_device),
        events=(*capabilities.limits.events, no_sleep_of_several_ranks),
    )
    lacking = ("graphs", "recurrent_layers")
    spec = {key: each for key, each in capabilities.spec.items() if key not in lacking}
    # With several pipeline ranks, vLLM's CPU runner looks for a drafter on all of them, and only the last one has it.
    spec |= {"tensor_ranks": (1, 2)}
    return replace(capabilities, spec=spec, limits=limits, ranks_are_processes=True)


def on_a_gpu(capabilities: Capabilities, gpus: int) -> Capabilities:
    """Return the capabilities on a machine with `gpus` GPUs, where fewer features are observed.

    Several ranks are processes, each with a GPU. Generated traces have one rank.
    """
    # vLLM's GPU kernels for gated delta nets refuse float32.
    lacking = ("offloading", "handoff", "recurrent_layers", "window", "window_heads", "data_ranks")
    spec = {key: each for key, each in capabilities.spec.items() if key not in lacking}
    # Sliding windows are untested on a GPU.
    spec["layers"] = ("attention", "hybrid")
    situations = tuple(
        each for each in capabilities.situations if each not in (tensor_ranks, pipeline_ranks, data_ranks)
    )
    limits = replace(capabilities.limits, spec=(*capabilities.limits.spec, at_most_one_rank_per_gpu(gpus)))
    return replace(capabilities, spec=spec, delays=True, ranks_are_processes=True, situations=situations, limits=limits)
