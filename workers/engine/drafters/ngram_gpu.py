"""Prompt lookup on the device: the history of each row lies in blocks of its own, and is searched behind each step."""

from workers.engine.context import Context, Forward


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the history, and the search in it."""
    launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
    view = forward.view
    launch(parts.write_tokens, view.input_ids, view.drafter_slots, memory.drafter_kv.all)
    launch(
        parts.ngram_search,
        view.next_tokens,
        view.positions,
        view.token_index,
        view.valid,
        view.block_table,
        memory.drafter_kv.all,
        view.draft_tokens,
        spec.block_size,
        memory.max_blocks,
        forward.num_blocks_max,
        spec.num_speculative_tokens,
        forward.k_step,
    )
