"""Prompt lookup on the device (ngram_gpu): each row's history lies in blocks and is searched behind each step."""

from workers.engine.context import Context, Forward, arguments_of
from workers.kernels.ngram.definition import NgramSearch, WriteTokens

_write_tokens = arguments_of(WriteTokens, slots="drafter_slots")
_ngram_search = arguments_of(NgramSearch, "num_blocks_max", "num_proposed")


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what adds the tokens of a step to the history, and the search in it."""
    launch, parts = context.compute.launch, context.parts
    view = forward.view
    launch(parts.write_tokens, context.of_view(_write_tokens, view.shape))
    launch(parts.ngram_search, context.once(_ngram_search, view.shape, forward.num_blocks_max, forward.k_step))
