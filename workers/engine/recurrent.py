"""Recurrent states that are kept with cache blocks, so that whoever takes a block over can go on from its end."""

from workers.engine.context import Context, Forward
from workers.lanes.lane import Span


def launch_state_copy(context: Context, forward: Forward) -> None:
    """Enqueue the copy of a step's states to the blocks that its accepted tokens reached."""
    spec, memory, view = context.spec, context.memory, forward.view
    context.compute.launch(
        context.parts.state_copy,
        view.num_computed,
        view.num_scheduled,
        view.num_drafts,
        view.accepted,
        view.state_slot,
        view.block_table,
        memory.states.all,
        memory.conv.all,
        memory.block_states.all,
        memory.block_windows.all,
        spec.block_size,
        memory.max_blocks,
        spec.num_speculative_tokens,
        spec.conv_width,
    )
    context.captures.block_states(view, forward.step, forward.requests)


def launch_state_restore(context: Context, forward: Forward) -> None:
    """Enqueue what lets rows that join go on from the states of the blocks they take over."""
    spec, memory, view = context.spec, context.memory, forward.view
    context.compute.launch(
        context.parts.state_restore,
        view.taken_over,
        view.state_slot,
        memory.block_states.all,
        memory.block_windows.all,
        memory.slot_accepted.all,
        memory.states.all,
        memory.conv.all,
        spec.num_speculative_tokens,
        spec.conv_width,
    )


def launch_poison(context: Context, blocks: Span, num_blocks: int) -> None:
    """Enqueue what makes the states of blocks that change hands unreadable."""
    memory = context.memory
    context.compute.launch(
        context.parts.poison_states,
        blocks,
        memory.block_states.all,
        memory.block_windows.all,
        num_blocks,
        context.spec.conv_width - 1,
    )
