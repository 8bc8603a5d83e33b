"""Block drafter (dflash): a context of the target's hidden words, and one pass over a block of masked positions."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.dflash.arguments import DflashBlock, DflashContext


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the context, and the block that proposes all drafts behind them."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.dflash_context, context.of_view(_dflash_context, view.shape))
    launch(parts.dflash_block, context.once(_dflash_block, view.shape, forward.num_blocks_max, forward.k_step))


def _dflash_context(context: Context, view: ShapeView) -> DflashContext:
    memory = context.memory
    return DflashContext(
        hidden=view.hidden,
        positions=view.positions,
        slots=view.drafter_slots,
        drafter_kv=memory.drafter_kv.all,
    )


def _dflash_block(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> DflashBlock:
    memory, spec = context.memory, context.spec
    return DflashBlock(
        hidden=view.hidden,
        next_tokens=view.next_tokens,
        positions=view.positions,
        token_index=view.token_index,
        num_scheduled=view.num_scheduled,
        valid=view.valid,
        state_slot=view.state_slot,
        block_table=view.block_table,
        script=memory.script.all,
        drafter_kv=memory.drafter_kv.all,
        raw=view.raw,
        draft_tokens=view.draft_tokens,
        block_size=spec.block_size,
        max_blocks=memory.max_blocks,
        num_blocks_max=num_blocks_max,
        max_model_len=spec.max_model_len,
        num_speculative_tokens=spec.num_speculative_tokens,
        num_proposed=k_step,
        vocab_size=spec.vocab_size,
    )
