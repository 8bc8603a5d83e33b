"""Medusa heads: they run on the device behind a step; their drafts go to the host, and from there to the next step."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the heads; they have no cache, so nothing is done for any other token of the step."""
    view, spec = forward.view, context.spec
    context.compute.launch(
        context.parts.medusa_heads,
        view.hidden,
        view.positions,
        view.token_index,
        view.num_scheduled,
        view.valid,
        view.state_slot,
        context.memory.script.all,
        view.raw,
        view.draft_tokens,
        spec.max_model_len,
        spec.num_speculative_tokens,
        forward.k_step,
    )
