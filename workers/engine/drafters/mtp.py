"""The multi-token-prediction drafter: one layer behind the target's, which carries a hidden word from step to step."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the layer's pass over the tokens of a step, and the chain that runs it on its own output."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view = forward.view
    launch(
        parts.mtp_pass,
        view.hidden,
        view.input_ids,
        view.positions,
        view.drafter_slots,
        view.query_start,
        view.num_computed,
        view.accepted,
        view.token_index,
        view.state_slot,
        memory.carried.all,
        memory.drafter_kv.all,
    )
    launch(
        parts.mtp_chain,
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
    )
