"""The draft model: the target's layers on caches of its own; it predicts, and the script makes some drafts wrong.

Where drafts are drawn the script makes what they are drawn from another distribution.
"""

from workers.engine.context import Context, Forward

DRAWN_BY = ("temperature", "seed", "point_mass")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the model's pass over the tokens of a step, and the chain that predicts the ones behind them."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view, k = forward.view, spec.num_speculative_tokens
    conv_width = spec.conv_width if spec.layers == "hybrid" else 0
    caches = (memory.drafter_states.all, memory.drafter_conv.all, memory.drafter_kv.all)
    launch(
        parts.draft_model_pass,
        view.input_ids,
        view.positions,
        view.drafter_slots,
        view.token_row,
        view.token_index,
        view.block_table,
        view.num_computed,
        view.query_start,
        view.num_scheduled,
        view.num_drafts,
        view.state_slot,
        view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
        view.drafter_hidden,
        view.drafter_attended,
        *caches,
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        forward.num_queries_max,
        k,
        conv_width,
    )
    before = (
        view.next_tokens,
        view.positions,
        view.token_index,
        view.num_scheduled,
        view.valid,
        view.accepted,
        view.state_slot,
        view.block_table,
        memory.script.all,
    )
    found = (view.raw, view.own, view.draft_tokens)
    sizes = (
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        spec.max_model_len,
        k,
        forward.k_step,
        spec.vocab_size,
        conv_width,
    )
    if spec.draft_sampling == "greedy" or not (k and forward.named.random):
        launch(parts.draft_model_chain, *before, *caches, *found, *sizes)
        return
    temperature, seeds, certain = (memory.sampling_field(name, view.num_rows) for name in DRAWN_BY)
    launch(parts.draft_noise, seeds, view.positions, view.token_index, view.draft_noise, k)
    drawn = (temperature, certain, view.draft_noise)
    launch(parts.drawn_chain, *before, *drawn, *caches, memory.draft_logits.all, *found, *sizes)
