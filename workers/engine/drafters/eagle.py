"""The EAGLE-like drafter: fed with the target's hidden words, with a cache of its own, proposing by a script."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the drafter's pass over the tokens of a step, and the chain that proposes its drafts."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view = forward.view
    launch(
        parts.draft_first_pass,
        view.hidden,
        view.input_ids,
        view.positions,
        view.drafter_slots,
        view.token_index,
        view.next_tokens,
        view.num_scheduled,
        view.drafter_hidden,
        memory.drafter_kv.all,
    )
    launch(
        parts.draft_chain,
        view.drafter_hidden,
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
    )
