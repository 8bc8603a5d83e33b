"""The forward pass of the target model: its inputs, corrected on the device, and its layers."""

from workers.engine.context import Context, Forward


def launch_inputs(context: Context, forward: Forward) -> None:
    """Enqueue what turns the host's optimistic tables into the true inputs of a step."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view = forward.view
    launch(
        parts.prepare_inputs,
        view.prev_position,
        view.prev_num_scheduled,
        view.prev_num_drafts,
        view.prev_num_computed,
        memory.valid.all,
        memory.next_tokens.all,
        memory.prev_drafts,
        memory.slot_accepted.all,
        view.computed_host,
        view.query_start,
        view.num_scheduled,
        view.num_drafts,
        view.state_slot,
        view.host_ids,
        view.token_row,
        view.block_table,
        view.num_computed,
        view.seq_lens,
        view.accepted_read,
        view.positions,
        view.slots,
        view.input_ids,
        view.scheduled_drafts,
        spec.block_size,
        memory.max_blocks,
        spec.num_speculative_tokens,
    )


def launch_target(context: Context, forward: Forward) -> None:
    """Enqueue the target model: attention, then a recurrent layer if it has one, then logits."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view = forward.view
    k = spec.num_speculative_tokens
    launch(parts.kv_write, view.input_ids, view.positions, view.slots, view.hidden, memory.kv.all, 0)
    _launch_attention(context, forward)
    if spec.layers == "hybrid":
        launch(
            parts.recurrent_update,
            view.hidden,
            view.num_computed,
            view.query_start,
            view.num_scheduled,
            view.num_drafts,
            view.state_slot,
            view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
            memory.states.all,
            memory.conv.all,
            forward.num_queries_max,
            k,
            spec.conv_width,
        )
    launch(
        parts.compute_logits,
        view.hidden,
        view.query_start,
        view.num_scheduled,
        view.num_drafts,
        view.logits,
        k,
        spec.vocab_size,
    )


def _launch_attention(context: Context, forward: Forward) -> None:
    parts, memory, view = context.parts, context.memory, forward.view
    # Each argument by name: to unpack several tuples into a call, Python makes a list first.
    if forward.num_common_blocks:
        context.compute.launch(
            parts.cascade_attention,
            memory.kv.all,
            view.block_table,
            view.token_row,
            view.positions,
            view.hidden,
            view.attended,
            context.spec.block_size,
            memory.max_blocks,
            forward.num_blocks_max,
            forward.num_common_blocks,
        )
    else:
        context.compute.launch(
            parts.attention,
            memory.kv.all,
            view.block_table,
            view.token_row,
            view.positions,
            view.hidden,
            view.attended,
            context.spec.block_size,
            memory.max_blocks,
            forward.num_blocks_max,
        )
