"""Capabilities of SGLang, and its limits: key, condition, allowed values, reason."""

from scenarios.capabilities import Capabilities, Excess, KeyAtMost, Limits, Without, with_params
from scenarios.events import AnyEvent, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec

# Sizes of vocabularies that models are made for.
VOCABULARIES = (32, 33, 40, 64, 65, 97, 128, 130)
# A prompt of SGLang is refused so many tokens before what its model allows.
CONTEXT_BEYOND = 6
# Tokens of the shortest request that a pool has room for.
_ROOM_MIN = 8
# Parameters of a request whose tokens are drawn: by a seed, beside which its sampler refuses min_p.
_DRAWN = ("temperature", "top_k", "top_p", "seed")
_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")


def has_penalties(params: SamplingParams) -> bool:
    """Tell whether tokens that came before count less."""
    return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1)


def changed_logits_show_no_logprobs(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: no request with biases or penalties has logprobs."""
    if not isinstance(event, Submit) or not event.params.num_logprobs:
        return None
    params = event.params
    if not params.logit_bias and not has_penalties(params):
        return None
    seen, mended = params.num_logprobs, with_params(event, {"num_logprobs": 0})
    allowed = "beside logit_bias and penalties it is 0"
    return Excess("params.num_logprobs", seen, allowed, mended, "they are those behind these")


def pages_are_powers_of_two(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the tokens of a page are a power of 2."""
    size = 1 << (spec.block_size.bit_length() - 1)
    if spec.block_size == size:
        return None
    # No smaller a pool, in smaller pages.
    mended = {"block_size": size, "num_blocks": -(-spec.num_blocks * spec.block_size // size)}
    reason = "its kernels count the tokens of a page in blocks of such sizes"
    return Excess("block_size", spec.block_size, "powers of 2 are allowed", spec.model_copy(update=mended), reason)


def chunks_are_of_pages(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: chunks of prompts end where pages of the cache do."""
    rest = spec.max_num_batched_tokens % spec.block_size
    if not rest:
        return None
    mended = spec.model_copy(update={"max_num_batched_tokens": spec.max_num_batched_tokens - rest + spec.block_size})
    allowed = f"a multiple of block_size {spec.block_size} is allowed"
    return Excess("max_num_batched_tokens", spec.max_num_batched_tokens, allowed, mended)


def room_of(spec: EngineSpec) -> int:
    """Return how many tokens a request may have in the pool of an engine.

    It is refused, or cut short, to leave two pages free; and ended for want of slots for the drafts of two steps.
    """
    return spec.num_blocks * spec.block_size - _kept_free(spec)


def _kept_free(spec: EngineSpec) -> int:
    return max(CONTEXT_BEYOND, 2 * spec.block_size) + 2 * (spec.num_speculative_tokens + 1)


def pool_has_room(spec: EngineSpec) -> Excess[EngineSpec] | None:
    """Limit: the pool has room for a short request."""
    least = -(-(_ROOM_MIN + _kept_free(spec)) // spec.block_size)
    if spec.num_blocks >= least:
        return None
    mended, reason = spec.model_copy(update={"num_blocks": least}), "some of the pool is kept free"
    return Excess("num_blocks", spec.num_blocks, f"{least} are allowed, and more", mended, reason)


CAPABILITIES = Capabilities(
    events=("abort",),
    # A server's loop takes what comes between two steps.
    places=("before_schedule",),
    features=("stop", "continues", "priority", "num_logprobs", "logit_bias", *_PENALTIES, *_DRAWN),
    spec={
        "layers": ("attention",),
        "depth": (2, 1),
        "policy": (),
        "prefix_cache": (),
        "sampling": ("standard",),
        "vocab_size": VOCABULARIES,
        "num_speculative_tokens": (),
        "drafter": ("eagle", "eagle3", "draft_model"),
        "drafter_quality": (),
        "max_num_seqs": (),
        "max_num_batched_tokens": (),
        "max_model_len": (),
        "block_size": (),
        "num_blocks": (),
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
    ),
    limits=Limits(
        # The kernel that verifies what is drawn is compiled for GPUs alone; beside drafts penalties are those of the
        # tokens before a step, "a relaxed version" (`eagle_prepare_for_decode` in `speculative/eagle_utils.py`).
        features=(Without((*_DRAWN, *_PENALTIES), when=lambda spec: spec.num_speculative_tokens > 0),),
        events=(changed_logits_show_no_logprobs,),
        spec=(
            pages_are_powers_of_two,
            chunks_are_of_pages,
            pool_has_room,
            KeyAtMost("max_model_len", room_of, "the pool, less what is kept free, has"),
        ),
    ),
    planes=("races", "blocks", "books", "counts", "inputs", "kv"),
    logit_margin=1e-4,
    words_from_prompt=False,
    is_costly=True,
)
