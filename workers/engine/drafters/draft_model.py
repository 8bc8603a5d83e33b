"""Draft model: the target's layers on caches of its own; it predicts, and the script makes some drafts wrong.

Where drafts are drawn the script makes what they are drawn from another distribution.
"""

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.memory import ShapeView, View
from workers.kernels.draft_model.definition import DraftModelChain, DraftModelPass
from workers.kernels.draft_sampling.definition import DraftNoise, DrawnChain

_draft_model_chain = arguments_of(DraftModelChain, "num_blocks_max", "num_proposed", "conv_width")


def draft_model(context: Context, forward: Forward) -> None:
    """Enqueue the model's pass over the tokens of a step, and the chain that predicts the ones behind them."""
    spec, view = context.spec, forward.view
    conv_width = spec.conv_width if spec.layers == "hybrid" else 0
    context.compute.launch(
        context.parts.draft_model_pass,
        context.once(_draft_model_pass, view, forward.num_blocks_max, forward.num_queries_max, conv_width),
    )
    if spec.draft_sampling == "probabilistic" and spec.num_speculative_tokens and forward.named.random:
        _launch_drawn_chain(context, forward, conv_width)
    else:
        chain = context.once(_draft_model_chain, view.shape, forward.num_blocks_max, forward.k_step, conv_width)
        context.compute.launch(context.parts.draft_model_chain, chain)


def _launch_drawn_chain(context: Context, forward: Forward, conv_width: int) -> None:
    """Enqueue the noise of drafts, and the chain that draws them and keeps their logits in the slots of the rows."""
    view = forward.view
    context.compute.launch(context.parts.draft_noise, context.of_view(_draft_noise, view.shape))
    context.compute.launch(
        context.parts.drawn_chain,
        context.once(_drawn_chain, view.shape, forward.num_blocks_max, forward.k_step, conv_width),
    )


def _draft_model_pass(
    context: Context, view: View, num_blocks_max: int, num_queries_max: int, conv_width: int
) -> DraftModelPass:
    spec = context.spec
    return context.bound(
        DraftModelPass,
        view,
        slots=view.drafter_slots,
        accepted=view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
        num_blocks_max=num_blocks_max,
        num_queries_max=num_queries_max,
        conv_width=conv_width,
    )


def _draft_noise(context: Context, view: ShapeView) -> DraftNoise:
    memory = context.memory
    return context.bound(DraftNoise, view, seeds=memory.sampling_field("seeds", view.num_rows))


def _drawn_chain(context: Context, view: ShapeView, num_blocks_max: int, k_step: int, conv_width: int) -> DrawnChain:
    memory, spec = context.memory, context.spec
    return context.bound(
        DrawnChain,
        view,
        temperature_bits=memory.sampling_field("temperature_bits", view.num_rows),
        point_mass=memory.sampling_field("point_mass", view.num_rows),
        num_blocks_max=num_blocks_max,
        num_proposed=k_step,
        conv_width=conv_width,
        vocab_block_min=spec.vocab_block,
        tile_size=spec.vocab_tile,
    )
