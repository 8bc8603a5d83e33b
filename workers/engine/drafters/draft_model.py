"""The draft model: the target's layers on caches of its own; it predicts, and the script makes some drafts wrong."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the model's pass over the tokens of a step, and the chain that predicts the ones behind them."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view, k = forward.view, spec.num_speculative_tokens
    conv_width = spec.conv_width if spec.layers == "hybrid" else 0
    launch(
        parts.draft_model_pass,
        view.input_ids,
        view.positions,
        view.drafter_slots,
        view.token_row,
        view.token_index,
        view.block_table,
        view.num_computed,
        view.query_start,
        view.num_scheduled,
        view.num_drafts,
        view.state_slot,
        view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
        view.drafter_hidden,
        view.drafter_attended,
        memory.drafter_states.all,
        memory.drafter_conv.all,
        memory.drafter_kv.all,
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        forward.num_queries_max,
        k,
        conv_width,
    )
    launch(
        parts.draft_model_chain,
        view.next_tokens,
        view.positions,
        view.token_index,
        view.num_scheduled,
        view.valid,
        view.accepted,
        view.state_slot,
        view.block_table,
        memory.script.all,
        memory.drafter_states.all,
        memory.drafter_conv.all,
        memory.drafter_kv.all,
        view.raw,
        view.own,
        view.draft_tokens,
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        spec.max_model_len,
        k,
        forward.k_step,
        spec.vocab_size,
        conv_width,
    )
