"""Block drafter (dflash): a context of the target's hidden words, and one pass over a block of masked positions."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.dflash.definition import DflashBlock, DflashContext

_dflash_context = arguments_of(DflashContext, slots="drafter_slots")
_dflash_block = arguments_of(DflashBlock, "num_blocks_max", "num_proposed")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the context, and the block that proposes all drafts behind them."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.dflash_context, context.of_view(_dflash_context, view.shape))
    launch(parts.dflash_block, context.once(_dflash_block, view.shape, forward.num_blocks_max, forward.k_step))
