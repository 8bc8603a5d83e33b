"""Recurrent states kept with cache blocks, so that a request that shares a block can continue from its end."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.poison.definition import PoisonStates
from workers.kernels.state_copy.definition import StateCopy
from workers.kernels.state_restore.definition import StateRestore
from workers.lanes.lane import Span

_state_copy = arguments_of(StateCopy)
_state_restore = arguments_of(StateRestore)


def launch_state_copy(context: Context, forward: Forward) -> None:
    """Enqueue the copy of a step's states to the blocks that its accepted tokens reached."""
    view = forward.view
    context.compute.launch(context.parts.state_copy, context.of_view(_state_copy, view))
    context.captures.block_states(view, forward.step, forward.requests)


def launch_state_restore(context: Context, forward: Forward) -> None:
    """Enqueue the copy of states from shared blocks to the rows that join with them."""
    view = forward.view
    context.compute.launch(context.parts.state_restore, context.of_view(_state_restore, view.shape))


def launch_poison(context: Context, blocks: Span, num_blocks: int) -> None:
    """Enqueue the poisoning of states in blocks that change hands."""
    context.compute.launch(context.parts.poison_states, context.once(_poison_states, blocks, num_blocks))


def _poison_states(context: Context, blocks: Span, num_blocks: int) -> PoisonStates:
    memory, spec = context.memory, context.spec
    return PoisonStates(
        blocks=blocks,
        block_states=memory.block_states.all,
        block_windows=memory.block_windows.all,
        num_blocks=num_blocks,
        window_length=spec.conv_width - 1,
    )
