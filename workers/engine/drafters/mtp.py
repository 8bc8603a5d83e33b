"""Multi-token prediction (mtp): one layer behind the target's, which carries a hidden word from step to step."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView, View
from workers.kernels.mtp.definition import MtpChain, MtpPass


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the layer's pass over the tokens of a step, and the chain that runs it on its own output."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.mtp_pass, context.of_view(_mtp_pass, view))
    launch(parts.mtp_chain, context.once(_mtp_chain, view.shape, forward.num_blocks_max, forward.k_step))


def _mtp_pass(context: Context, view: View) -> MtpPass:
    return context.bound(MtpPass, view, slots=view.drafter_slots)


def _mtp_chain(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> MtpChain:
    return context.bound(MtpChain, view, num_blocks_max=num_blocks_max, num_proposed=k_step)
