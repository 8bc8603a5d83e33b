"""The block drafter: a context of the target's hidden words, and one pass over a block of masked positions."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the context, and the block that proposes all drafts behind them."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view = forward.view
    launch(parts.dflash_context, view.hidden, view.positions, view.drafter_slots, memory.drafter_kv.all)
    launch(
        parts.dflash_block,
        view.hidden,
        view.next_tokens,
        view.positions,
        view.token_index,
        view.num_scheduled,
        view.valid,
        view.state_slot,
        view.block_table,
        memory.script.all,
        memory.drafter_kv.all,
        view.raw,
        view.draft_tokens,
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        spec.max_model_len,
        spec.num_speculative_tokens,
        forward.k_step,
        spec.vocab_size,
    )
