"""Extraction of hidden states: they go to a cache for a consumer; the one draft is the token just sampled."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.extract_hidden_states.definition import ExtractHiddenStates

_extract_hidden_states = arguments_of(ExtractHiddenStates, "num_proposed", slots="drafter_slots")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what writes the hidden words of a step out, and proposes its sampled tokens."""
    view = forward.view
    context.compute.launch(
        context.parts.extract_hidden_states, context.once(_extract_hidden_states, view.shape, forward.k_step)
    )
