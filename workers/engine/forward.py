"""Forward pass of the target model: its inputs, corrected on the device, and its layers."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView, View
from workers.kernels.attention.arguments import Attention
from workers.kernels.cascade_attention.arguments import CascadeAttention
from workers.kernels.compute_logits.arguments import ComputeLogits
from workers.kernels.kv_write.arguments import KvWrite
from workers.kernels.prepare_inputs.arguments import PrepareInputs
from workers.kernels.recurrent_update.arguments import RecurrentUpdate


def launch_inputs(context: Context, forward: Forward) -> None:
    """Enqueue what turns the host's optimistic tables into the true inputs of a step."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.prepare_inputs, context.of_view(_prepare_inputs, view))


def launch_target(context: Context, forward: Forward) -> None:
    """Enqueue the target model: attention, then a recurrent layer if it has one, then logits."""
    launch, parts, spec = context.compute.launch, context.parts, context.spec
    view = forward.view
    launch(parts.kv_write, context.of_view(_kv_write, view.shape))
    _launch_attention(context, forward)
    if spec.layers == "hybrid":
        launch(parts.recurrent_update, context.once(_recurrent_update, view, forward.num_queries_max))
    launch(parts.compute_logits, context.of_view(_compute_logits, view.shape))


def _launch_attention(context: Context, forward: Forward) -> None:
    parts, view = context.parts, forward.view
    if forward.num_common_blocks:
        context.compute.launch(
            parts.cascade_attention,
            context.once(_cascade_attention, view.shape, forward.num_blocks_max, forward.num_common_blocks),
        )
    else:
        context.compute.launch(parts.attention, context.once(_attention, view.shape, forward.num_blocks_max))


def _prepare_inputs(context: Context, view: View) -> PrepareInputs:
    memory, spec = context.memory, context.spec
    return PrepareInputs(
        prev_position=view.prev_position,
        prev_num_scheduled=view.prev_num_scheduled,
        prev_num_drafts=view.prev_num_drafts,
        prev_num_computed=view.prev_num_computed,
        prev_valid=memory.valid.all,
        next_tokens=memory.next_tokens.all,
        draft_tokens=memory.prev_drafts,
        slot_accepted=memory.slot_accepted.all,
        computed_host=view.computed_host,
        query_start=view.query_start,
        num_scheduled=view.num_scheduled,
        num_drafts=view.num_drafts,
        state_slot=view.state_slot,
        host_ids=view.host_ids,
        token_row=view.token_row,
        block_table=view.block_table,
        num_computed=view.num_computed,
        seq_lens=view.seq_lens,
        accepted=view.accepted_read,
        positions=view.positions,
        slots=view.slots,
        input_ids=view.input_ids,
        scheduled_drafts=view.scheduled_drafts,
        block_size=spec.block_size,
        max_blocks=memory.max_blocks,
        num_speculative_tokens=spec.num_speculative_tokens,
        vocab_size=spec.vocab_size,
    )


def _kv_write(context: Context, view: ShapeView) -> KvWrite:
    memory = context.memory
    return KvWrite(
        input_ids=view.input_ids,
        positions=view.positions,
        slots=view.slots,
        hidden=view.hidden,
        kv=memory.kv.all,
        layer=0,
    )


def _compute_logits(context: Context, view: ShapeView) -> ComputeLogits:
    spec = context.spec
    return ComputeLogits(
        hidden=view.hidden,
        query_start=view.query_start,
        num_scheduled=view.num_scheduled,
        num_drafts=view.num_drafts,
        logits=view.logits,
        num_speculative_tokens=spec.num_speculative_tokens,
        vocab_size=spec.vocab_size,
    )


def _recurrent_update(context: Context, view: View, num_queries_max: int) -> RecurrentUpdate:
    memory, spec = context.memory, context.spec
    return RecurrentUpdate(
        hidden=view.hidden,
        num_computed=view.num_computed,
        query_start=view.query_start,
        num_scheduled=view.num_scheduled,
        num_drafts=view.num_drafts,
        state_slot=view.state_slot,
        accepted=view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
        states=memory.states.all,
        conv=memory.conv.all,
        num_queries_max=num_queries_max,
        num_speculative_tokens=spec.num_speculative_tokens,
        conv_width=spec.conv_width,
    )


def _cascade_attention(
    context: Context, view: ShapeView, num_blocks_max: int, num_common_blocks: int
) -> CascadeAttention:
    memory, spec = context.memory, context.spec
    return CascadeAttention(
        kv=memory.kv.all,
        block_table=view.block_table,
        token_row=view.token_row,
        positions=view.positions,
        hidden=view.hidden,
        output=view.attended,
        block_size=spec.block_size,
        max_blocks=memory.max_blocks,
        num_blocks_max=num_blocks_max,
        num_common_blocks=num_common_blocks,
    )


def _attention(context: Context, view: ShapeView, num_blocks_max: int) -> Attention:
    memory, spec = context.memory, context.spec
    return Attention(
        kv=memory.kv.all,
        block_table=view.block_table,
        token_row=view.token_row,
        positions=view.positions,
        hidden=view.hidden,
        output=view.attended,
        block_size=spec.block_size,
        max_blocks=memory.max_blocks,
        num_blocks_max=num_blocks_max,
    )
