"""Multi-token prediction (mtp): one layer behind the target's, which carries a hidden word from step to step."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView, View
from workers.kernels.mtp.arguments import MtpChain, MtpPass


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the layer's pass over the tokens of a step, and the chain that runs it on its own output."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.mtp_pass, context.of_view(_mtp_pass, view))
    launch(parts.mtp_chain, context.once(_mtp_chain, view.shape, forward.num_blocks_max, forward.k_step))


def _mtp_pass(context: Context, view: View) -> MtpPass:
    memory = context.memory
    return MtpPass(
        hidden=view.hidden,
        input_ids=view.input_ids,
        positions=view.positions,
        slots=view.drafter_slots,
        query_start=view.query_start,
        num_computed=view.num_computed,
        accepted=view.accepted,
        token_index=view.token_index,
        state_slot=view.state_slot,
        carried=memory.carried.all,
        drafter_kv=memory.drafter_kv.all,
    )


def _mtp_chain(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> MtpChain:
    memory, spec = context.memory, context.spec
    return MtpChain(
        hidden=view.hidden,
        next_tokens=view.next_tokens,
        positions=view.positions,
        token_index=view.token_index,
        num_scheduled=view.num_scheduled,
        valid=view.valid,
        state_slot=view.state_slot,
        block_table=view.block_table,
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
