"""Multi-token prediction (mtp): one layer behind the target's, which carries a hidden word from step to step."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.mtp.definition import MtpChain, MtpPass

_mtp_pass = arguments_of(MtpPass, slots="drafter_slots")
_mtp_chain = arguments_of(MtpChain, "num_blocks_max", "num_proposed")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the layer's pass over the tokens of a step, and the chain that runs it on its own output."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.mtp_pass, context.of_view(_mtp_pass, view))
    launch(parts.mtp_chain, context.once(_mtp_chain, view.shape, forward.num_blocks_max, forward.k_step))
