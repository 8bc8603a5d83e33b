"""Prompt lookup on the device (ngram_gpu): each row's history lies in blocks and is searched behind each step."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.ngram.arguments import NgramSearch, WriteTokens


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the history, and the search in it."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.write_tokens, context.of_view(_write_tokens, view.shape))
    launch(parts.ngram_search, context.once(_ngram_search, view.shape, forward.num_blocks_max, forward.k_step))


def _write_tokens(context: Context, view: ShapeView) -> WriteTokens:
    memory = context.memory
    return WriteTokens(
        input_ids=view.input_ids,
        slots=view.drafter_slots,
        drafter_kv=memory.drafter_kv.all,
    )


def _ngram_search(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> NgramSearch:
    memory, spec = context.memory, context.spec
    return NgramSearch(
        next_tokens=view.next_tokens,
        positions=view.positions,
        token_index=view.token_index,
        valid=view.valid,
        block_table=view.block_table,
        drafter_kv=memory.drafter_kv.all,
        draft_tokens=view.draft_tokens,
        block_size=spec.block_size,
        max_blocks=memory.max_blocks,
        num_blocks_max=num_blocks_max,
        num_speculative_tokens=spec.num_speculative_tokens,
        num_proposed=k_step,
    )
