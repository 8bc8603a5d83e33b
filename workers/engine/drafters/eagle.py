"""EAGLE-like drafter: fed with the target's hidden words, with a cache of its own, proposing by a script."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.draft_slots.arguments import DraftSlots
from workers.kernels.eagle.arguments import DraftChain, DraftFirstPass


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the drafter's pass over the tokens of a step, the slots of drafts, and the chain that proposes them."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.draft_first_pass, context.of_view(_draft_first_pass, view.shape))
    launch(parts.draft_slots, context.once(_draft_slots, view.shape, forward.k_step))
    launch(parts.draft_chain, context.once(_draft_chain, view.shape, forward.num_blocks_max, forward.k_step))


def _draft_first_pass(context: Context, view: ShapeView) -> DraftFirstPass:
    memory = context.memory
    return DraftFirstPass(
        hidden=view.hidden,
        input_ids=view.input_ids,
        positions=view.positions,
        slots=view.drafter_slots,
        token_index=view.token_index,
        next_tokens=view.next_tokens,
        num_scheduled=view.num_scheduled,
        drafter_hidden=view.drafter_hidden,
        drafter_kv=memory.drafter_kv.all,
    )


def _draft_slots(context: Context, view: ShapeView, k_step: int) -> DraftSlots:
    spec = context.spec
    return DraftSlots(
        positions=view.positions,
        token_index=view.token_index,
        num_scheduled=view.num_scheduled,
        block_table=view.block_table,
        draft_slots=view.draft_slots,
        block_size=spec.block_size,
        max_blocks=context.memory.max_blocks,
        max_model_len=spec.max_model_len,
        num_speculative_tokens=spec.num_speculative_tokens,
        num_proposed=k_step,
    )


def _draft_chain(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> DraftChain:
    memory, spec = context.memory, context.spec
    return DraftChain(
        drafter_hidden=view.drafter_hidden,
        positions=view.positions,
        token_index=view.token_index,
        num_scheduled=view.num_scheduled,
        valid=view.valid,
        state_slot=view.state_slot,
        block_table=view.block_table,
        draft_slots=view.draft_slots,
        script=memory.script.all,
        drafter_kv=memory.drafter_kv.all,
        raw=view.raw,
        draft_tokens=view.draft_tokens,
        block_size=spec.block_size,
        max_blocks=memory.max_blocks,
        num_blocks_max=num_blocks_max,
        max_model_len=spec.max_model_len,
        num_speculative_tokens=spec.num_speculative_tokens,
        num_proposed=k_step,
    )
