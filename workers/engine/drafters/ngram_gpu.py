"""Prompt lookup on the device (ngram_gpu): each row's history lies in blocks and is searched behind each step."""

from workers.engine.context import Context, Forward
from workers.engine.memory import ShapeView
from workers.kernels.ngram.definition import NgramSearch, WriteTokens


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the history, and the search in it."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.write_tokens, context.of_view(_write_tokens, view.shape))
    launch(parts.ngram_search, context.once(_ngram_search, view.shape, forward.num_blocks_max, forward.k_step))


def _write_tokens(context: Context, view: ShapeView) -> WriteTokens:
    return context.bound(WriteTokens, view, slots=view.drafter_slots)


def _ngram_search(context: Context, view: ShapeView, num_blocks_max: int, k_step: int) -> NgramSearch:
    return context.bound(NgramSearch, view, num_blocks_max=num_blocks_max, num_proposed=k_step)
