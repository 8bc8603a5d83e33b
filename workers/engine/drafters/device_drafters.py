"""Drafters that run on the device behind a step, but for the draft model: a function each enqueues one's work."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.dflash.definition import DflashBlock, DflashContext
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass
from workers.kernels.extract_hidden_states.definition import ExtractHiddenStates
from workers.kernels.medusa.definition import MedusaHeads
from workers.kernels.mtp.definition import MtpChain, MtpPass
from workers.kernels.ngram.definition import NgramSearch, WriteTokens

_draft_first_pass = arguments_of(DraftFirstPass, slots="drafter_slots")
_draft_slots = arguments_of(DraftSlots, "num_proposed")
_draft_chain = arguments_of(DraftChain, "num_blocks_max", "num_proposed")
_mtp_pass = arguments_of(MtpPass, slots="drafter_slots")
_mtp_chain = arguments_of(MtpChain, "num_blocks_max", "num_proposed")
_dflash_context = arguments_of(DflashContext, slots="drafter_slots")
_dflash_block = arguments_of(DflashBlock, "num_blocks_max", "num_proposed")
_write_tokens = arguments_of(WriteTokens, slots="drafter_slots")
_ngram_search = arguments_of(NgramSearch, "num_blocks_max", "num_proposed")
_medusa_heads = arguments_of(MedusaHeads, "num_proposed")
_extract_hidden_states = arguments_of(ExtractHiddenStates, "num_proposed", slots="drafter_slots")


def eagle(context: Context, forward: Forward) -> None:
    """Enqueue a pass over the tokens of a step, the slots of drafts, and the chain that proposes them by a script.

    The EAGLE-like drafter is fed with the target's hidden words and has a cache of its own.
    """
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.draft_first_pass, context.of_view(_draft_first_pass, view.shape))
    launch(parts.draft_slots, context.once(_draft_slots, view.shape, forward.k_step))
    launch(parts.draft_chain, context.once(_draft_chain, view.shape, forward.num_blocks_max, forward.k_step))


def mtp(context: Context, forward: Forward) -> None:
    """Enqueue the pass of a layer over the tokens of a step, and the chain that runs it on its own output.

    The layer of multi-token prediction lies behind the target's, and carries a hidden word from step to step.
    """
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.mtp_pass, context.of_view(_mtp_pass, view))
    launch(parts.mtp_chain, context.once(_mtp_chain, view.shape, forward.num_blocks_max, forward.k_step))


def dflash(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the context, and the block that proposes all drafts behind them.

    The context is made of the target's hidden words; one pass goes over a block of masked positions.
    """
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.dflash_context, context.of_view(_dflash_context, view.shape))
    launch(parts.dflash_block, context.once(_dflash_block, view.shape, forward.num_blocks_max, forward.k_step))


def ngram_gpu(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the history of rows, which lies in their blocks, and a search in it."""
    launch, parts, view = context.compute.launch, context.parts, forward.view
    launch(parts.write_tokens, context.of_view(_write_tokens, view.shape))
    launch(parts.ngram_search, context.once(_ngram_search, view.shape, forward.num_blocks_max, forward.k_step))


def medusa(context: Context, forward: Forward) -> None:
    """Enqueue the medusa heads; they have no cache, so nothing is done for any other token of the step.

    Their drafts go to the host, and from there to the next step.
    """
    heads = context.once(_medusa_heads, forward.view.shape, forward.k_step)
    context.compute.launch(context.parts.medusa_heads, heads)


def extract_hidden_states(context: Context, forward: Forward) -> None:
    """Enqueue what writes the hidden words of a step out for a consumer, and proposes the tokens just sampled."""
    extracted = context.once(_extract_hidden_states, forward.view.shape, forward.k_step)
    context.compute.launch(context.parts.extract_hidden_states, extracted)


def nothing(context: Context, forward: Forward) -> None:
    """Enqueue nothing, for a drafter on the host: it proposes once the step has been processed."""
