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
    """Enqueue the EAGLE-like drafter: a first pass over the step's tokens, then the draft chain.

    The drafter reads the target's hidden states and has its own KV cache. A script decides which tokens it proposes.
    """
    launch, functions, view = context.compute.launch, context.functions, forward.view
    launch(functions.draft_first_pass, context.cached_in_view(_draft_first_pass, view.shape))
    launch(functions.draft_slots, context.cached(_draft_slots, view.shape, forward.k_step))
    launch(functions.draft_chain, context.cached(_draft_chain, view.shape, forward.num_blocks_max, forward.k_step))


def mtp(context: Context, forward: Forward) -> None:
    """Enqueue the MTP layer: a first pass over the step's tokens, then the draft chain.

    The layer follows the target's layers, and carries a hidden state from step to step. The chain runs on its own
    output.
    """
    launch, functions, view = context.compute.launch, context.functions, forward.view
    launch(functions.mtp_pass, context.cached_in_view(_mtp_pass, view))
    launch(functions.mtp_chain, context.cached(_mtp_chain, view.shape, forward.num_blocks_max, forward.k_step))


def dflash(context: Context, forward: Forward) -> None:
    """Enqueue the block drafter: add the step's tokens to its context, then propose a block.

    The context consists of the target's hidden states; one pass over a block of mask tokens gives all draft tokens.
    """
    launch, functions, view = context.compute.launch, context.functions, forward.view
    launch(functions.dflash_context, context.cached_in_view(_dflash_context, view.shape))
    launch(functions.dflash_block, context.cached(_dflash_block, view.shape, forward.num_blocks_max, forward.k_step))


def ngram_gpu(context: Context, forward: Forward) -> None:
    """Enqueue the n-gram drafter: store the step's tokens in blocks, then search them."""
    launch, functions, view = context.compute.launch, context.functions, forward.view
    launch(functions.write_tokens, context.cached_in_view(_write_tokens, view.shape))
    launch(functions.ngram_search, context.cached(_ngram_search, view.shape, forward.num_blocks_max, forward.k_step))


def medusa(context: Context, forward: Forward) -> None:
    """Enqueue the Medusa heads; they have no KV cache.

    Their draft tokens go to the host, and from there to the next step.
    """
    heads = context.cached(_medusa_heads, forward.view.shape, forward.k_step)
    context.compute.launch(context.functions.medusa_heads, heads)


def extract_hidden_states(context: Context, forward: Forward) -> None:
    """Enqueue the op that caches hidden states; its draft token is the sampled token itself."""
    extracted = context.cached(_extract_hidden_states, forward.view.shape, forward.k_step)
    context.compute.launch(context.functions.extract_hidden_states, extracted)


def propose_on_host(context: Context, forward: Forward) -> None:
    """Enqueue no op: this drafter runs on the host after the step's results are processed."""


def draft_model(context: Context, forward: Forward) -> None:
    """Enqueue the draft model: a pass over the step's tokens, then one pass per draft token.

    The draft model has the target's layers and its own KV cache. The script makes some of its draft tokens wrong; if
    draft tokens are sampled, the script changes the distribution that they are sampled from.
    """
    spec, view = context.spec, forward.view
    conv_width = spec.conv_width if spec.layers == "hybrid" else 0
    context.compute.launch(
        context.functions.draft_model_pass,
        context.cached(_draft_model_pass, view, forward.num_blocks_max, forward.num_queries_max, conv_width),
    )
    if spec.draft_sampling == "probabilistic" and spec.num_speculative_tokens and forward.named.random:
        _launch_drawn_chain(context, forward, conv_width)
    else:
        chain = context.cached(_draft_model_chain, view.shape, forward.num_blocks_max, forward.k_step, conv_width)
        context.compute.launch(context.functions.draft_model_chain, chain)


def _launch_drawn_chain(context: Context, forward: Forward, conv_width: int) -> None:
    """Enqueue random noise and one draft pass per token, each sampling a draft token.

    Logits stay in the rows' state slots.
    """
    view = forward.view
    context.compute.launch(context.functions.draft_noise, context.cached_in_view(_draft_noise, view.shape))
    context.compute.launch(
        context.functions.drawn_chain,
        context.cached(_drawn_chain, view.shape, forward.num_blocks_max, forward.k_step, conv_width),
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
