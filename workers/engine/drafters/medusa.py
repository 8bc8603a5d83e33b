"""Medusa heads: they run on the device behind a step; their drafts go to the host, and from there to the next step."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.medusa.definition import MedusaHeads

_medusa_heads = arguments_of(MedusaHeads, "num_proposed")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the heads; they have no cache, so nothing is done for any other token of the step."""
    view = forward.view
    context.compute.launch(context.parts.medusa_heads, context.once(_medusa_heads, view.shape, forward.k_step))
