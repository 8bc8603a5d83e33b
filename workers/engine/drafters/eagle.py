"""EAGLE-like drafter: fed with the target's hidden words, with a cache of its own, proposing by a script."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass

_draft_first_pass = arguments_of(DraftFirstPass, slots="drafter_slots")
_draft_slots = arguments_of(DraftSlots, "num_proposed")
_draft_chain = arguments_of(DraftChain, "num_blocks_max", "num_proposed")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the drafter's pass over the tokens of a step, the slots of drafts, and the chain that proposes them."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.draft_first_pass, context.of_view(_draft_first_pass, view.shape))
    launch(parts.draft_slots, context.once(_draft_slots, view.shape, forward.k_step))
    launch(parts.draft_chain, context.once(_draft_chain, view.shape, forward.num_blocks_max, forward.k_step))
