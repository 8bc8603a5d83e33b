"""No drafter: the target's hidden words go to a cache for a consumer; the one draft is the token just sampled."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what writes the hidden words of a step out, and proposes its sampled tokens."""
    view, spec = forward.view, context.spec
    context.compute.launch(
        context.parts.extract_hidden_states,
        view.hidden,
        view.drafter_slots,
        view.next_tokens,
        view.valid,
        context.memory.drafter_kv.all,
        view.draft_tokens,
        spec.num_speculative_tokens,
        forward.k_step,
    )
