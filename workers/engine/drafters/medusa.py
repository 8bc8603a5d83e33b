"""Medusa heads: they run on the device behind a step; their drafts go to the host, and from there to the next step."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.medusa.arguments import MedusaHeads


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the heads; they have no cache, so nothing is done for any other token of the step."""
    view = forward.view
    context.compute.launch(context.parts.medusa_heads, context.once(_medusa_heads, view.shape, forward.k_step))


def _medusa_heads(context: Context, view: ShapeView, k_step: int) -> MedusaHeads:
    memory, spec = context.memory, context.spec
    return MedusaHeads(
        hidden=view.hidden,
        positions=view.positions,
        token_index=view.token_index,
        num_scheduled=view.num_scheduled,
        valid=view.valid,
        state_slot=view.state_slot,
        script=memory.script.all,
        raw=view.raw,
        draft_tokens=view.draft_tokens,
        max_model_len=spec.max_model_len,
        num_speculative_tokens=spec.num_speculative_tokens,
        num_proposed=k_step,
    )
