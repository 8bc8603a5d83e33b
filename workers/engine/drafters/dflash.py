"""Block drafter (dflash): a context of the target's hidden words, and one pass over a block of masked positions."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.dflash.definition import DflashBlock, DflashContext


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the context, and the block that proposes all drafts behind them."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.dflash_context, context.of_view(_dflash_context, view.shape))
    launch(parts.dflash_block, context.once(_dflash_block, view.shape, forward.num_blocks_max, forward.k_step))


def _dflash_context(context: Context, view: ShapeView) -> DflashContext:
    return context.bound(DflashContext, view, slots=view.drafter_slots)


def _dflash_block(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> DflashBlock:
    return context.bound(DflashBlock, view, num_blocks_max=num_blocks_max, num_proposed=k_step)
