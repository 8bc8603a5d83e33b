"""EAGLE-like drafter: fed with the target's hidden words, with a cache of its own, proposing by a script."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the drafter's pass over the tokens of a step, the slots of drafts, and the chain that proposes them."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.draft_first_pass, context.of_view(_draft_first_pass, view.shape))
    launch(parts.draft_slots, context.once(_draft_slots, view.shape, forward.k_step))
    launch(parts.draft_chain, context.once(_draft_chain, view.shape, forward.num_blocks_max, forward.k_step))


def _draft_first_pass(context: Context, view: ShapeView) -> DraftFirstPass:
    return context.bound(DraftFirstPass, view, slots=view.drafter_slots)


def _draft_slots(context: Context, view: ShapeView, k_step: int) -> DraftSlots:
    return context.bound(DraftSlots, view, num_proposed=k_step)


def _draft_chain(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> DraftChain:
    return context.bound(DraftChain, view, num_blocks_max=num_blocks_max, num_proposed=k_step)
