"""Capabilities of vLLM with each model runner, and the limits of its specs and events."""

from dataclasses import replace

from scenarios.capabilities import Capabilities, Excess, KeyAtMost, Limits, NothingBeside, OneOf
from scenarios.events import CONTROL_EVENTS, AnyEvent, LoadWeights, Preempt, SetK
from scenarios.probes import CONTROL_PROBES, OF_HANDOFFS, OF_TRANSFERS
from scenarios.spec import EngineSpec
from workers.targets.vllm.connector_limits import (
    clearings_are_without_transfers,
    connectors_are_alone,
    dummy_steps_are_without_transfers,
    graphs_are_without_connectors,
    handoffs_are_undisturbed,
    offloading_is_of_attention,
    own_transfers_are_undisturbed,
    producers_hold_the_model,
    simple_offloading_is_of_a_device,
    simple_offloading_is_of_the_prefix_cache,
    states_are_loaded_beside_steps,
    windows_are_without_connectors,
)
from workers.targets.vllm.engine_sizes import sequences_in_graphs
from workers.targets.vllm.request_features import FIRST, SECOND
from workers.targets.vllm.situations import user_logits_processor

# Vocabulary sizes that have a model; a smaller one has fewer tokens than the logprobs that a request may ask for.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 128, 130)
# Values of `match_tokens`: prefix-cache hits end at multiples of it inside a block of 32 tokens; 0: at block ends only.
MATCHES = (0, 8, 16)
_BESIDE_HYBRIDS = ("eagle", "ngram_gpu", "ngram")
_BESIDE_WINDOWS = ("eagle", "eagle3", "draft_model", "ngram_gpu", "ngram")


def reasoning_ends_by_a_token(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the token that ends reasoning is in the vocabulary."""
    if spec.reasoning_end is None or spec.reasoning_end < spec.vocab_size:
        return None
    last = spec.vocab_size - 1
    mended = spec.model_copy(update={"reasoning_end": last})
    return Excess("reasoning_end", spec.reasoning_end, f"vocab_size allows 0 to {last}", mended)


def processors_are_without_drafts(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: no custom logits processor with speculative decoding."""
    if not spec.logits_processor or not spec.num_speculative_tokens:
        return None
    mended = spec.model_copy(update={"logits_processor": False})
    return Excess("logits_processor", True, "with drafts False is allowed", mended, "vLLM refuses it with drafts")


def runs_of_drafts_have_room(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with dflash a step fits a token, its draft tokens and a lookahead slot for each."""
    least = 1 + 2 * spec.num_speculative_tokens
    if spec.drafter != "dflash" or spec.num_speculative_tokens == 0 or spec.max_num_batched_tokens >= least:
        return None
    mended = spec.model_copy(update={"max_num_batched_tokens": least})
    reason = "vLLM schedules a decode only if its token, its drafts and one lookahead slot per draft fit"
    return Excess("max_num_batched_tokens", spec.max_num_batched_tokens, f"at least {least} is allowed", mended, reason)


def hybrids_have_few_drafters(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a hybrid target supports the drafters eagle, ngram_gpu and ngram.

    The others have a KV-cache group of their own, or read hidden states of several target layers.
    """
    if spec.layers != "hybrid" or not spec.num_speculative_tokens or spec.drafter in _BESIDE_HYBRIDS:
        return None
    allowed = f"allowed with layers hybrid are {', '.join(_BESIDE_HYBRIDS)}"
    mended, reason = spec.model_copy(update={"layers": "attention"}), "the hybrid model does not support other drafters"
    return Excess("drafter", spec.drafter, allowed, mended, reason)


def recurrent_layers_are_of_hybrids(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: `recurrent_layers` is for hybrid models only."""
    if spec.layers == "hybrid" or spec.recurrent_layers == "short_conv":
        return None
    mended = spec.model_copy(update={"recurrent_layers": "short_conv"})
    return Excess("recurrent_layers", spec.recurrent_layers, f"with layers {spec.layers} short_conv is allowed", mended)


def windows_have_few_drafters(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a sliding-window target supports every drafter except mtp and dflash.

    These are part of the target, or read hidden states of all layers of the model with full attention.
    """
    if spec.layers != "windows" or not spec.num_speculative_tokens or spec.drafter in _BESIDE_WINDOWS:
        return None
    allowed = f"allowed with layers windows are {', '.join(_BESIDE_WINDOWS)}"
    mended, reason = spec.model_copy(update={"layers": "attention"}), "other drafters need another model"
    return Excess("drafter", spec.drafter, allowed, mended, reason)


def windows_are_of_their_layers(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: `window` and `window_heads` are for sliding-window models only."""
    for key in ("window", "window_heads") if spec.layers != "windows" else ():
        seen, default = getattr(spec, key), EngineSpec.model_fields[key].default
        if seen != default:
            mended = spec.model_copy(update={key: default})
            return Excess(key, seen, f"with layers {spec.layers} {default} is allowed", mended)
    return None


def hits_end_inside_blocks_of_hybrids(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: `match_tokens` needs a hybrid model with a prefix cache; some options exclude it."""
    if not spec.match_tokens:
        return None
    mended = spec.model_copy(update={"match_tokens": 0})
    if spec.layers != "hybrid" or not spec.prefix_cache:
        return Excess("match_tokens", spec.match_tokens, "without layers hybrid and prefix_cache 0 is allowed", mended)
    drafts = spec.num_speculative_tokens > 0 and spec.drafter == "eagle"
    if drafts or spec.offloading is not None or spec.handoff is not None:
        reason = "the content of their partly filled blocks is not observed"
        allowed = "with offloading, handoff or drafter eagle 0 is allowed"
        return Excess("match_tokens", spec.match_tokens, allowed, mended, reason)
    return None


def lookups_on_the_device_stay(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no `set_k` with ngram_gpu, which asserts a constant number of draft tokens."""
    if not isinstance(event, SetK) or spec.drafter != "ngram_gpu":
        return None
    return Excess("k", event.k, "not allowed with drafter ngram_gpu", None, "it asserts a constant number")


def weights_with_heads_stay(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no `load_weights` with mtp: its target has one version of its weights."""
    if not isinstance(event, LoadWeights) or spec.drafter != "mtp":
        return None
    allowed = "not allowed with drafter mtp"
    return Excess("version", event.version, allowed, None, "its model has one version of its weights")


# Holds for vLLM's CPU kernels only.
_HYBRID_WITHOUT_DRAFTS = NothingBeside(
    "num_speculative_tokens",
    beside=("layers", "hybrid"),
    otherwise="attention",
    reason="vLLM's CPU kernels cannot roll a recurrent state back to before a rejected draft",
)
# A request of max_model_len tokens fits into the block pool, and no prefill chunk is longer than such a request.
_POOL_HOLDS_MODEL = (
    KeyAtMost("max_model_len", lambda spec: spec.num_blocks * spec.block_size, "num_blocks x block_size"),
    KeyAtMost("long_prefill_token_threshold", lambda spec: spec.max_model_len, "max_model_len"),
    KeyAtMost("max_num_seqs", sequences_in_graphs, "num_blocks less the state blocks of graphs"),
)

FIRST_RUNNER = Capabilities(
    events=(
        *("abort", "preempt", "stall", "reset_prefix_cache", "disturb_transfer", "set_k", "dummy_step", "end_session"),
        *CONTROL_EVENTS,
    ),
    places=("before_schedule",),
    # Before it processes a step's results, the server handles aborts that arrived during the step, and no other event.
    places_besides={"abort": ("before_process",)},
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
        *OF_TRANSFERS,
        *OF_HANDOFFS,
        "dummy_step",
        "k_change",
        *CONTROL_PROBES,
    ),
    limits=Limits(
        features=FIRST.lacks,
        events=(
            OneOf(Preempt, "mode", ("deliver",), "modes"),
            *FIRST.limits,
            lookups_on_the_device_stay,
            handoffs_are_undisturbed,
            clearings_are_without_transfers,
            own_transfers_are_undisturbed,
            weights_with_heads_stay,
        ),
        spec=(
            processors_are_without_drafts,
            hybrids_have_few_drafters,
            recurrent_layers_are_of_hybrids,
            windows_have_few_drafters,
            windows_are_of_their_layers,
            windows_are_without_connectors,
            hits_end_inside_blocks_of_hybrids,
            offloading_is_of_attention,
            states_are_loaded_beside_steps,
            connectors_are_alone,
            graphs_are_without_connectors,
            producers_hold_the_model,
            simple_offloading_is_of_the_prefix_cache,
            runs_of_drafts_have_room,
            reasoning_ends_by_a_token,
            *_POOL_HOLDS_MODEL,
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
    spec={key: each for key, each in FIRST_RUNNER.spec.items() if key not in ("decodes_first", "logits_processor")},
    features=SECOND.names,
    situations=(),
    planes=(*FIRST_RUNNER.planes, "sampler"),
    limits=replace(
        FIRST_RUNNER.limits,
        features=SECOND.lacks,
        events=(*FIRST_RUNNER.limits.events, dummy_steps_are_without_transfers),
        spec=tuple(each for each in FIRST_RUNNER.limits.spec if each is not processors_are_without_drafts),
    ),
)


def on_a_cpu(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities on a CPU, which lacks CUDA graphs, gated delta nets and streams."""
    on_a_device = (_HYBRID_WITHOUT_DRAFTS, simple_offloading_is_of_a_device)
    limits = replace(capabilities.limits, spec=(*capabilities.limits.spec, *on_a_device))
    lacking = ("graphs", "recurrent_layers")
    spec = {key: each for key, each in capabilities.spec.items() if key not in lacking}
    return replace(capabilities, spec=spec, limits=limits)


def on_a_gpu(capabilities: Capabilities) -> Capabilities:
    """Return the capabilities on a GPU, where fewer features are observed."""
    # vLLM's GPU kernels for gated delta nets refuse float32.
    lacking = ("offloading", "handoff", "recurrent_layers", "window", "window_heads")
    spec = {key: each for key, each in capabilities.spec.items() if key not in lacking}
    # Sliding windows are untested on a GPU.
    spec["layers"] = ("attention", "hybrid")
    return replace(capabilities, spec=spec, delays=True)
