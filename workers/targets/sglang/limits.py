"""Capabilities of SGLang, and its limits: key, condition, allowed values, reason."""

from scenarios.capabilities import Capabilities, Excess, KeyAtMost, Limits, OneOf
from scenarios.events import Pause
from scenarios.spec import EngineSpec
from workers.targets.sglang.request_features import FEATURES
from workers.targets.sglang.situations import SITUATIONS

# Sizes of vocabularies that models are made for.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 128, 130)
# The size for which logits stay a view of padded rows, as they do in a model with float32 weights. For the other
# sizes each row of logits follows the one before it, as in a model whose logits are converted to float32.
VOCABULARY_OF_VIEWS = 97
# A prompt of SGLang is refused so many tokens before what its model allows.
CONTEXT_BEYOND = 6
# Tokens of the shortest request that a pool has room for.
_ROOM_MIN = 8
_MIXING = ("eagle", "eagle3")


def pages_are_powers_of_two(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the tokens of a page are a power of 2."""
    size = 1 << (spec.block_size.bit_length() - 1)
    if spec.block_size == size:
        return None
    # No smaller a pool, in smaller pages.
    mended = {"block_size": size, "num_blocks": -(-spec.num_blocks * spec.block_size // size)}
    reason = "SGLang's kernels need a page size that is a power of 2"
    return Excess("block_size", spec.block_size, "a power of 2 is allowed", spec.model_copy(update=mended), reason)


def chunks_are_of_pages(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: chunks of prompts end where pages of the cache do."""
    rest = spec.max_num_batched_tokens % spec.block_size
    if not rest:
        return None
    mended = spec.model_copy(update={"max_num_batched_tokens": spec.max_num_batched_tokens - rest + spec.block_size})
    allowed = f"a multiple of block_size {spec.block_size} is allowed"
    return Excess("max_num_batched_tokens", spec.max_num_batched_tokens, allowed, mended)


def streams_are_beside_drafts(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: a stream plans what is drafted, and lengths are relayed to a host that goes ahead of accepted drafts."""
    if spec.plan_stream and not spec.num_speculative_tokens:
        mended = spec.model_copy(update={"plan_stream": False})
        return Excess(
            "plan_stream",
            True,
            "without drafts False is allowed",
            mended,
            "it prepares draft steps only",
        )
    if spec.relay_lengths and (not spec.num_speculative_tokens or spec.depth == 1):
        mended = spec.model_copy(update={"relay_lengths": False})
        allowed = "without drafts, or at depth 1, False is allowed"
        return Excess("relay_lengths", True, allowed, mended, "the host knows the lengths then")
    return None


def decodes_beside_prompts_are_of_few_drafters(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: decodes are taken along without drafts, or with those of some drafters."""
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


def trees_are_of_few_drafters(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: several tokens are proposed behind each one by drafters with a model, of drafts alone that it makes."""
    if spec.tree_width == 1 or (spec.num_speculative_tokens and spec.drafter != "ngram_corpus"):
        return None
    allowed = "without drafts, or with drafter ngram_corpus, 1 is allowed"
    mended, reason = spec.model_copy(update={"tree_width": 1}), "only a draft model uses it"
    return Excess("tree_width", spec.tree_width, allowed, mended, reason)


def room_of(spec: EngineSpec) -> int:
    """Return how many tokens a request may have in the pool of an engine.

    It is refused, or cut short, to leave two pages free; and ended for want of slots for the drafts of two steps.
    """
    return spec.num_blocks * spec.block_size - _kept_free(spec)


def _kept_free(spec: EngineSpec) -> int:
    return max(CONTEXT_BEYOND, 2 * spec.block_size) + 2 * _slots_of_a_step(spec)


def _slots_of_a_step(spec: EngineSpec) -> int:
    """Return how many slots a decode may take: those verified, or of all that is proposed, in pages for each branch."""
    k, page, width = spec.num_speculative_tokens, spec.block_size, spec.tree_width
    if width == 1 or page == 1:
        return max(1 + k, k * width)
    return max(1 + k, (2 * page - 2 + k) // page * page * width)


def pool_has_room(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the pool has room for a short request."""
    least = -(-(_ROOM_MIN + _kept_free(spec)) // spec.block_size)
    if spec.num_blocks >= least:
        return None
    mended, reason = spec.model_copy(update={"num_blocks": least}), "SGLang keeps some slots of its KV pool free"
    return Excess("num_blocks", spec.num_blocks, f"at least {least} is allowed", mended, reason)


CAPABILITIES = Capabilities(
    events=("abort", "pause", "resume"),
    # A server's loop takes what comes between two steps.
    places=("before_schedule",),
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
    },
    # Streams are the engine's own; a schedule orders their tasks.
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
        # Its front end has no pause in which requests come to their ends.
        events=(OneOf(Pause, "mode", ("keep", "abort"), "modes"), *FEATURES.limits),
        spec=(
            streams_are_beside_drafts,
            decodes_beside_prompts_are_of_few_drafters,
            trees_are_of_few_drafters,
            pages_are_powers_of_two,
            chunks_are_of_pages,
            pool_has_room,
            KeyAtMost("max_model_len", room_of, "the KV pool less its reserved slots"),
        ),
    ),
    situations=SITUATIONS,
    planes=("races", "blocks", "books", "counts", "inputs", "kv"),
    logit_margin=1e-4,
    words_from_prompt=False,
    is_costly=True,
)
