"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

import numpy as np

from workers.kernels.probabilities import NEVER, block_odds, lines_of, scale_of, verification, weight
from workers.kernels.signature import In, Out


def residual_mass(
    logits: In,
    draft_logits: In,
    draft_slots: In,
    floors: In,
    temperature: In,
    drafts: In,
    num_drafts: In,
    point_mass: In,
    block_max: In,
    block_sum: In,
    residual: Out,
    num_speculative_tokens: int,
    vocab_size: int,
    logits_stride: int,
    draft_stride: int,
    block_size: int,
) -> None:
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all.

    Shapes: residual [B * K * blocks] float32, column c for c drafts before; the others as in verify_drafts. Written
    for rows of a temperature, columns from 1 up to the last usable draft.
    """
    num_rows, k = len(num_drafts), num_speculative_tokens
    lines = lines_of(logits, 1 + k, logits_stride, vocab_size)
    draft_lines = lines_of(draft_logits, k, draft_stride, vocab_size)
    floor = floors.reshape(num_rows, 1 + k)
    known = verification(
        lines, draft_lines, draft_slots, floor, temperature, drafts.reshape(num_rows, k), num_drafts, point_mass,
        block_max, block_sum, vocab_size,
    )  # fmt: skip
    odds, scale = block_odds(known), scale_of(temperature)
    num_blocks = -(-vocab_size // block_size)
    left = residual.reshape(num_rows, k, num_blocks)
    for row in np.flatnonzero(temperature > 0):
        for c in range(1, int(known.usable[row])):
            p = weight(lines[row, c], floor[row, c], known.target.maximum[row, c], scale[row])
            if point_mass[row]:
                q = (np.arange(vocab_size) == drafts[row * k + c]).astype(np.float32)
            else:
                q = weight(draft_lines[draft_slots[row], c], NEVER, known.draft.maximum[row, c], scale[row])
            total, draft_total = known.target.total[row, c], known.draft.total[row, c]
            padded = np.zeros(num_blocks * block_size, dtype=np.float32)
            padded[:vocab_size] = np.maximum(odds[row, c] * p * draft_total - q * total, 0)
            left[row, c] = padded.reshape(num_blocks, block_size).sum(axis=1) / (total * draft_total)
