"""Drafters that run on the device after a step: one function each enqueues the ops."""

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.memory import ShapeView, View
from workers.kernels.dflash.definition import DflashBlock, DflashContext
from workers.kernels.draft_model.definition import DraftModelChain, DraftModelPass
from workers.kernels.draft_sampling.definition import DraftNoise, DrawnChain
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass
from workers.kernels.extract_hidden_states.definition import ExtractHiddenStates
from workers.kernels.medusa.definition import MedusaHeads
from workers.kernels.mtp.definition import MtpChain, MtpPass
from workers.kernels.ngram.definition import NgramSearch, WriteTokens

_draft_first_pass = arguments_of(DraftFirstPass, slots="drafter_slots")
_draft_slots = arguments_of(DraftSlots, "num_proposed")
_draft_chain = arguments_of(DraftChain, "num_blocks_max", "num_proposed")
_draft_model_chain = arguments_of(DraftModelChain, "num_blocks_max", "num_proposed", "conv_width")
_mtp_pass = arguments_of(MtpPass, slots="drafter_slots")
_mtp_chain = arguments_of(MtpChain, "num_blocks_max", "num_proposed")
_dflash_context = arguments_of(DflashContext, slots="drafter_slots")
_dflash_block = arguments_of(DflashBlock, "num_blocks_max", "num_proposed")
_write_tokens = arguments_of(WriteTokens, slots="drafter_slots")
_ngram_search = arguments_of(NgramSearch, "num_blocks_max", "num_proposed")
_medusa_heads = arguments_of(MedusaHeads, "num_proposed")
_extract_hidden_states = arguments_of(ExtractHiddenStates, "num_proposed", slots="drafter_slots")


def eagle(context: Context, forward: Forward) -> None:
    """Enqueue the EAGLE-like drafter: first pass, slot mapping, draft chain.

    The drafter reads the target's hidden states and has its own KV cache. A script decides which tokens it proposes.
    """
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.draft_first_pass, context.of_view(_draft_first_pass, view.shape))
    launch(parts.draft_slots, context.once(_draft_slots, view.shape, forward.k_step))
    launch(parts.draft_chain, context.once(_draft_chain, view.shape, forward.num_blocks_max, forward.k_step))


def mtp(context: Context, forward: Forward) -> None:
    """Enqueue the multi-token-prediction layer: first pass, then the draft chain.

    The layer follows the target's layers, and carries a hidden state from step to step. The chain runs on its own
    output.
    """
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.mtp_pass, context.of_view(_mtp_pass, view))
    launch(parts.mtp_chain, context.once(_mtp_chain, view.shape, forward.num_blocks_max, forward.k_step))


def dflash(context: Context, forward: Forward) -> None:
    """Enqueue the block drafter: extend the context, then propose a block of draft tokens.

    The context consists of the target's hidden states; one pass over a block of mask tokens gives all draft tokens.
    """
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.dflash_context, context.of_view(_dflash_context, view.shape))
    launch(parts.dflash_block, context.once(_dflash_block, view.shape, forward.num_blocks_max, forward.k_step))


def ngram_gpu(context: Context, forward: Forward) -> None:
    """Enqueue the n-gram drafter: write the step's tokens to blocks, then search there."""
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.write_tokens, context.of_view(_write_tokens, view.shape))
    launch(parts.ngram_search, context.once(_ngram_search, view.shape, forward.num_blocks_max, forward.k_step))


def medusa(context: Context, forward: Forward) -> None:
    """Enqueue the Medusa heads, which have no KV cache to update for other tokens of the step.

    Their draft tokens go to the host, and from there to the next step.
    """
    heads = context.once(_medusa_heads, forward.view.shape, forward.k_step)
    context.compute.launch(context.parts.medusa_heads, heads)


def extract_hidden_states(context: Context, forward: Forward) -> None:
    """Enqueue the op that caches hidden states and proposes the token just sampled."""
    extracted = context.once(_extract_hidden_states, forward.view.shape, forward.k_step)
    context.compute.launch(context.parts.extract_hidden_states, extracted)


def nothing(context: Context, forward: Forward) -> None:
    """Enqueue no op: this step's draft tokens come from a drafter on the host, once processed."""


def draft_model(context: Context, forward: Forward) -> None:
    """Enqueue the draft model: a pass over the step's tokens, then one per draft token.

    The draft model has the target's layers and its own KV cache. The script makes some of its draft tokens wrong; if
    draft tokens are sampled, the script changes the distribution that they are sampled from.
    """
    spec, view = context.spec, forward.view
    conv_width = spec.conv_width if spec.layers == "hybrid" else 0
    context.compute.launch(
        context.parts.draft_model_pass,
        context.once(_draft_model_pass, view, forward.num_blocks_max, forward.num_queries_max, conv_width),
    )
    if spec.draft_sampling == "probabilistic" and spec.num_speculative_tokens and forward.named.random:
        _launch_drawn_chain(context, forward, conv_width)
    else:
        chain = context.once(_draft_model_chain, view.shape, forward.num_blocks_max, forward.k_step, conv_width)
        context.compute.launch(context.parts.draft_model_chain, chain)


def _launch_drawn_chain(context: Context, forward: Forward, conv_width: int) -> None:
    """Enqueue the passes that sample draft tokens, and their random numbers.

    Logits stay in the rows' state slots.
    """
    view = forward.view
    context.compute.launch(context.parts.draft_noise, context.of_view(_draft_noise, view.shape))
    context.compute.launch(
        context.parts.drawn_chain,
        context.once(_drawn_chain, view.shape, forward.num_blocks_max, forward.k_step, conv_width),
    )


def _draft_model_pass(
    context: Context, view: View, num_blocks_max: int, num_queries_max: int, conv_width: int
) -> DraftModelPass:
    spec = context.spec
    return context.bound(
        DraftModelPass,
        view,
        slots=view.drafter_slots,
        accepted=view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
        num_blocks_max=num_blocks_max,
        num_queries_max=num_queries_max,
        conv_width=conv_width,
    )


def _draft_noise(context: Context, view: ShapeView) -> DraftNoise:
    memory = context.memory
    return context.bound(DraftNoise, view, seeds=memory.sampling_field("seeds", view.num_rows))


def _drawn_chain(context: Context, view: ShapeView, num_blocks_max: int, k_step: int, conv_width: int) -> DrawnChain:
    memory, spec = context.memory, context.spec
    return context.bound(
        DrawnChain,
        view,
        temperature_bits=memory.sampling_field("temperature_bits", view.num_rows),
        point_mass=memory.sampling_field("point_mass", view.num_rows),
        num_blocks_max=num_blocks_max,
        num_proposed=k_step,
        conv_width=conv_width,
        vocab_block_min=spec.vocab_block,
        tile_size=spec.vocab_tile,
    )
