"""The draft model: the target's layers on caches of its own; it predicts, and the script makes some drafts wrong.

Where drafts are drawn the script makes what they are drawn from another distribution.
"""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the model's pass over the tokens of a step, and the chain that predicts the ones behind them."""
    memory, spec, view = context.memory, context.spec, forward.view
    conv_width = spec.conv_width if spec.layers == "hybrid" else 0
    # Each argument by name: to unpack several tuples into a call, Python makes a list first.
    context.compute.launch(
        context.parts.draft_model_pass,
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
        spec.num_speculative_tokens,
        conv_width,
    )
    if spec.draft_sampling == "probabilistic" and spec.num_speculative_tokens and forward.named.random:
        _launch_drawn_chain(context, forward, conv_width)
    else:
        _launch_chain(context, forward, conv_width)


def _launch_chain(context: Context, forward: Forward, conv_width: int) -> None:
    memory, spec, view = context.memory, context.spec, forward.view
    context.compute.launch(
        context.parts.draft_model_chain,
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
        spec.num_speculative_tokens,
        forward.k_step,
        spec.vocab_size,
        conv_width,
    )


def _launch_drawn_chain(context: Context, forward: Forward, conv_width: int) -> None:
    """Enqueue the noise of drafts, and the chain that draws them and keeps their logits in the slots of the rows."""
    memory, spec, view = context.memory, context.spec, forward.view
    context.compute.launch(
        context.parts.draft_noise,
        memory.sampling_field("seed", view.num_rows),
        view.positions,
        view.token_index,
        view.draft_noise,
        spec.num_speculative_tokens,
    )
    context.compute.launch(
        context.parts.drawn_chain,
        view.next_tokens,
        view.positions,
        view.token_index,
        view.num_scheduled,
        view.valid,
        view.accepted,
        view.state_slot,
        view.block_table,
        memory.script.all,
        memory.sampling_field("temperature", view.num_rows),
        memory.sampling_field("point_mass", view.num_rows),
        view.draft_noise,
        memory.drafter_states.all,
        memory.drafter_conv.all,
        memory.drafter_kv.all,
        memory.draft_logits.all,
        view.raw,
        view.own,
        view.draft_tokens,
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        spec.max_model_len,
        spec.num_speculative_tokens,
        forward.k_step,
        spec.vocab_size,
        conv_width,
    )
