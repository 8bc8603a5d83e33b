"""Target forward pass: correct the host's input counts on the device, run the layers.

A recurrent state is stored with KV-cache blocks, so that a request with a prefix-cache hit can continue from its end.
"""

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.memory import ShapeView, View
from workers.kernels.attention.definition import Attention
from workers.kernels.cascade_attention.definition import CascadeAttention
from workers.kernels.compute_logits.definition import ComputeLogits
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.poison.definition import PoisonStates
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.recurrent_update.definition import RecurrentUpdate
from workers.kernels.state_copy.definition import StateCopy
from workers.kernels.state_restore.definition import StateRestore
from workers.lanes.lane import Span

_state_copy = arguments_of(StateCopy)
_state_restore = arguments_of(StateRestore)
_compute_logits = arguments_of(ComputeLogits)
_cascade_attention = arguments_of(CascadeAttention, "num_blocks_max", "num_common_blocks", output="attended")
_attention = arguments_of(Attention, "num_blocks_max", output="attended")


def launch_inputs(context: Context, forward: Forward) -> None:
    """Enqueue the op that corrects the host's optimistic counts and builds model inputs."""
    context.compute.launch(context.functions.prepare_inputs, context.cached_in_view(_prepare_inputs, forward.view))


def launch_target(context: Context, forward: Forward) -> None:
    """Enqueue the target model: KV write, attention, recurrent layer if any, logits."""
    launch, functions, spec = context.compute.launch, context.functions, context.spec
    view = forward.view
    launch(functions.kv_write, context.cached_in_view(_kv_write, view.shape))
    _launch_attention(context, forward)
    if spec.layers == "hybrid":
        launch(functions.recurrent_update, context.cached(_recurrent_update, view, forward.num_queries_max))
    launch(functions.compute_logits, context.cached_in_view(_compute_logits, view.shape))


def launch_state_copy(context: Context, forward: Forward) -> None:
    """Enqueue the op that stores recurrent states with the blocks of accepted tokens."""
    view = forward.view
    context.compute.launch(context.functions.state_copy, context.cached_in_view(_state_copy, view))
    context.captures.block_states(view, forward.step, forward.requests)


def launch_state_restore(context: Context, forward: Forward) -> None:
    """Enqueue the op that loads recurrent states from the blocks of a prefix-cache hit."""
    context.compute.launch(context.functions.state_restore, context.cached_in_view(_state_restore, forward.view.shape))


def launch_poison(context: Context, blocks: Span, num_blocks: int) -> None:
    """Enqueue the op that overwrites recurrent states of reallocated blocks."""
    memory, length = context.memory, context.spec.conv_width - 1
    states, windows = memory.block_states.all, memory.block_windows.all
    poisoned = context.arguments(PoisonStates, blocks, states, windows, num_blocks, length)
    context.compute.launch(context.functions.poison_states, poisoned)


def _launch_attention(context: Context, forward: Forward) -> None:
    functions, view = context.functions, forward.view
    if forward.num_common_blocks:
        context.compute.launch(
            functions.cascade_attention,
            context.cached(_cascade_attention, view.shape, forward.num_blocks_max, forward.num_common_blocks),
        )
    else:
        context.compute.launch(functions.attention, context.cached(_attention, view.shape, forward.num_blocks_max))


def _prepare_inputs(context: Context, view: View) -> PrepareInputs:
    memory = context.memory
    # Results of the previous step, in that step's number of rows.
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
