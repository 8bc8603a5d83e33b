"""Capabilities of SGLang; limits of engine options: key, condition, allowed values."""

from scenarios.capabilities import Capabilities, Excess, KeyAtMost, Limits, OneOf
from scenarios.events import Pause
from scenarios.spec import EngineSpec
from workers.targets.sglang.request_features import FEATURES
from workers.targets.sglang.situations import SITUATIONS

# Vocabulary sizes of the models.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 128, 130)
# With this size, logits stay a view of padded rows, as in a model with float32 weights. With the other sizes they are
# contiguous, as in a model that converts its logits to float32.
VOCABULARY_WITH_VIEW = 97
# SGLang refuses prompts that are less than this many tokens shorter than the model's context length.
CONTEXT_MARGIN = 6
# The KV cache must have slots for a request of this many tokens.
_REQUEST_TOKENS_MIN = 8
_MIXING = ("eagle", "eagle3")


def page_size_is_a_power_of_two(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the page size of the KV cache is a power of 2."""
    size = 1 << (spec.block_size.bit_length() - 1)
    if spec.block_size == size:
        return None
    # Keep the number of slots, in smaller pages.
    fixed = {"block_size": size, "num_blocks": -(-spec.num_blocks * spec.block_size // size)}
    reason = "SGLang's kernels need a page size that is a power of 2"
    return Excess("block_size", spec.block_size, "a power of 2 is allowed", spec.model_copy(update=fixed), reason)


def chunk_size_is_a_multiple_of_the_page_size(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the prefill chunk size is a multiple of the page size."""
    rest = spec.max_num_batched_tokens % spec.block_size
    if not rest:
        return None
    fixed = spec.model_copy(update={"max_num_batched_tokens": spec.max_num_batched_tokens - rest + spec.block_size})
    allowed = f"a multiple of block_size {spec.block_size} is allowed"
    return Excess("max_num_batched_tokens", spec.max_num_batched_tokens, allowed, fixed)


def plan_stream_and_relayed_lengths_need_draft_tokens(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: `plan_stream` and `relay_lengths` need draft tokens.

    `relay_lengths` also needs async scheduling.

    The plan stream prepares draft steps. Lengths are relayed only to a host that runs ahead of the accepted draft
    tokens.
    """
    if spec.plan_stream and not spec.num_speculative_tokens:
        fixed = spec.model_copy(update={"plan_stream": False})
        return Excess(
            "plan_stream",
            True,
            "without drafts False is allowed",
            fixed,
            "it prepares draft steps only",
        )
    if spec.relay_lengths and (not spec.num_speculative_tokens or spec.depth == 1):
        fixed = spec.model_copy(update={"relay_lengths": False})
        allowed = "without drafts, or at depth 1, False is allowed"
        return Excess("relay_lengths", True, allowed, fixed, "the host knows the lengths then")
    return None


def mixed_chunks_exclude_some_drafters(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: some drafters do not allow decode rows in prefill batches."""
    if not spec.mixed_chunks or not spec.num_speculative_tokens or spec.drafter in _MIXING:
        return None
    allowed = f"with drafts it needs drafter {' or '.join(_MIXING)}"
    return Excess(
        "mixed_chunks",
        True,
        allowed,
        spec.model_copy(update={"mixed_chunks": False}),
        "SGLang refuses it with others",
    )


def draft_trees_need_a_draft_model(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a tree of draft tokens needs a drafter with a model."""
    if spec.tree_width == 1 or (spec.num_speculative_tokens and spec.drafter != "ngram_corpus"):
        return None
    allowed = "without drafts, or with drafter ngram_corpus, 1 is allowed"
    fixed, reason = spec.model_copy(update={"tree_width": 1}), "only a draft model uses it"
    return Excess("tree_width", spec.tree_width, allowed, fixed, reason)


def one_rank_with_draft_trees(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: with several ranks no draft trees, neither of a draft model nor of an n-gram corpus."""
    if spec.num_ranks == 1:
        return None
    fixed = spec.model_copy(update={"tensor_ranks": 1})
    reason = "accepted nodes of draft trees are recorded for one rank only"
    if spec.tree_width != 1:
        return Excess("tree_width", spec.tree_width, "with several ranks 1 is allowed", fixed, reason)
    if spec.num_speculative_tokens and spec.drafter == "ngram_corpus":
        return Excess("drafter", spec.drafter, "with several ranks others are allowed", fixed, reason)
    return None


def request_tokens_max(spec: EngineSpec) -> int:
    """Return how many tokens a request may have to fit into the KV cache.

    SGLang refuses or shortens a request to keep two pages free, and ends it if two steps' draft tokens have no slots.
    """
    return spec.num_blocks * spec.block_size - _reserved_slots(spec)


def _reserved_slots(spec: EngineSpec) -> int:
    return max(CONTEXT_MARGIN, 2 * spec.block_size) + 2 * _slots_per_decode_step(spec)


def _slots_per_decode_step(spec: EngineSpec) -> int:
    """Return the largest number of KV-cache slots a request needs for a decode step.

    It takes slots for the verified tokens, or for all nodes of the draft tree, with separate pages for each branch.
    """
    k, page, width = spec.num_speculative_tokens, spec.block_size, spec.tree_width
    if width == 1 or page == 1:
        return max(1 + k, k * width)
    return max(1 + k, (2 * page - 2 + k) // page * page * width)


def pool_has_room(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the KV cache has room for at least one short request."""
    least = -(-(_REQUEST_TOKENS_MIN + _reserved_slots(spec)) // spec.block_size)
    if spec.num_blocks >= least:
        return None
    fixed, reason = spec.model_copy(update={"num_blocks": least}), "SGLang keeps some slots of its KV pool free"
    return Excess("num_blocks", spec.num_blocks, f"at least {least} is allowed", fixed, reason)


CAPABILITIES = Capabilities(
    events=("abort", "pause", "resume"),
    # SGLang's event loop receives requests between two steps.
    hooks=("before_schedule",),
    features=FEATURES.names,
    spec={
        "layers": ("attention",),
        "depth": (2, 1),
        "policy": (),
        "prefix_cache": (),
        "sampling": ("standard",),
        "vocab_size": VOCABULARIES,
        "num_speculative_tokens": (),
        "drafter": ("eagle", "eagle3", "draft_model", "ngram_corpus"),
        "drafter_quality": (),
        "max_num_seqs": (),
        "max_num_batched_tokens": (),
        "max_model_len": (),
        "block_size": (),
        "num_blocks": (),
        "plan_stream": (),
        "relay_lengths": (),
        "mixed_chunks": (),
        "tree_width": (1, 2),
        "tensor_ranks": (1, 2),
    },
    # The streams are SGLang's own; a schedule orders their tasks.
    devices={"sim": ("streams",)},
    policies=("eager", "lazy", "random"),
    probes=(
        "admit",
        "resume",
        "discard",
        "preemption",
        "preemption_by_blocks",
        "preemption_in_flight",
        "prefix_hit",
        "abort",
        "abort_in_flight",
        "empty_step",
        "name_reused",
        "pause",
        "pause_in_flight",
        "resumed",
    ),
    limits=Limits(
        features=FEATURES.lacks,
        # SGLang has no pause that waits until running requests have finished.
        events=(OneOf(Pause, "mode", ("keep", "abort"), "modes"), *FEATURES.limits),
        spec=(
            one_rank_with_draft_trees,
            plan_stream_and_relayed_lengths_need_draft_tokens,
            mixed_chunks_exclude_some_drafters,
            draft_trees_need_a_draft_model,
            page_size_is_a_power_of_two,
            chunk_size_is_a_multiple_of_the_page_size,
            pool_has_room,
            KeyAtMost("max_model_len", request_tokens_max, "the KV pool less its reserved slots"),
        ),
    ),
    situations=SITUATIONS,
    planes=("races", "blocks", "books", "counts", "inputs", "kv", "ranks", "sampler"),
    logit_margin=1e-4,
    words_from_prompt=False,
    is_costly=True,
)
