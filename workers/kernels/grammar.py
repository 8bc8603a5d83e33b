"""What a grammar that the host follows does to a step: drafts that the host has checked, masks of what may come."""

import numpy as np

from workers.kernels.process_logits import bits_of
from workers.kernels.signature import In, InOut


def grammar_drafts(
    rows: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    host_ids: In,
    input_ids: InOut,
    scheduled_drafts: InOut,
    num_speculative_tokens: int,
) -> None:
    """Let `rows` verify the drafts that the host names, not those the device proposed.

    Shapes: rows [any]; query_start, num_scheduled, num_drafts [num_rows]; host_ids, input_ids [num_tokens];
    scheduled_drafts [num_rows * K]. NO_DRAFT where the host cut drafts off; the model is fed an id all the same.
    """
    for row in rows:
        d, end = num_drafts[row], query_start[row] + num_scheduled[row]
        first = row * num_speculative_tokens
        scheduled_drafts[first : first + d] = host_ids[end - d : end]
        input_ids[end - d : end] = np.maximum(host_ids[end - d : end], 0)


def apply_masks(columns: In, masks: In, logits: InOut, vocab_size: int) -> None:
    """Set the logits that a mask leaves out to -inf: mask i is that of column columns[i].

    Shapes: columns [count], row * (1 + K) + column; masks [count * words], one bit a token; logits
    [num_rows * (1 + K) * V].
    """
    scores = logits.reshape(-1, vocab_size)
    for column, words in zip(columns, masks.reshape(len(columns), -1), strict=True):
        scores[column, ~bits_of(words, vocab_size)] = -np.inf
