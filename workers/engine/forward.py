"""Forward pass of the target model: its inputs, corrected on the device, and its layers."""

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.memory import ShapeView, View
from workers.kernels.attention.definition import Attention
from workers.kernels.cascade_attention.definition import CascadeAttention
from workers.kernels.compute_logits.definition import ComputeLogits
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.recurrent_update.definition import RecurrentUpdate

_compute_logits = arguments_of(ComputeLogits)
_cascade_attention = arguments_of(CascadeAttention, "num_blocks_max", "num_common_blocks", output="attended")
_attention = arguments_of(Attention, "num_blocks_max", output="attended")


def launch_inputs(context: Context, forward: Forward) -> None:
    """Enqueue the ops that turn the host's optimistic tables into the true inputs of a step."""
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
    memory = context.memory
    # Results of the step before, in as many rows as it had.
    return context.bound(
        PrepareInputs,
        view,
        prev_valid=memory.valid.all,
        next_tokens=memory.next_tokens.all,
        draft_tokens=memory.prev_drafts,
        accepted=view.accepted_read,
    )


def _kv_write(context: Context, view: ShapeView) -> KvWrite:
    return context.bound(KvWrite, view, layer=0)


def _recurrent_update(context: Context, view: View, num_queries_max: int) -> RecurrentUpdate:
    spec = context.spec
    return context.bound(
        RecurrentUpdate,
        view,
        accepted=view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
        num_queries_max=num_queries_max,
    )
