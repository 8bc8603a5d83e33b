"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

import numpy as np

from workers.kernels.probabilities.vectorised import NEVER, block_odds, lines_of, scale_of, verification, weight
from workers.kernels.residual_mass.arguments import ResidualMass


def residual_mass(a: ResidualMass) -> None:
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all."""
    num_rows, k = len(a.num_drafts), a.num_speculative_tokens
    lines = lines_of(a.logits, 1 + k, a.logits_stride, a.vocab_size)
    draft_lines = lines_of(a.draft_logits, k, a.draft_stride, a.vocab_size)
    floor = a.floors.reshape(num_rows, 1 + k)
    known = verification(
        lines, draft_lines, a.draft_slots, floor, a.temperature, a.drafts.reshape(num_rows, k), a.num_drafts,
        a.point_mass,
        a.block_max, a.block_sum, a.vocab_size,
    )  # fmt: skip
    odds, scale = block_odds(known), scale_of(a.temperature)
    num_blocks = -(-a.vocab_size // a.block_size)
    left = a.residual.reshape(num_rows, k, num_blocks)
    noise = a.accept_noise.reshape(num_rows, k)
    for row in np.flatnonzero(a.temperature > 0):
        usable = int(known.usable[row])
        left[row, 1:usable] = 0
        if usable < 2 or noise[row, usable - 1] < odds[row, usable]:
            continue
        for c in 1 + np.flatnonzero(noise[row, : usable - 1] < odds[row, 1:usable]):
            p = weight(lines[row, c], floor[row, c], known.target.maximum[row, c], scale[row])
            if a.point_mass[row]:
                q = (np.arange(a.vocab_size) == a.drafts[row * k + c]).astype(np.float32)
            else:
                q = weight(draft_lines[a.draft_slots[row], c], NEVER, known.draft.maximum[row, c], scale[row])
            total, draft_total = known.target.total[row, c], known.draft.total[row, c]
            padded = np.zeros(num_blocks * a.block_size, dtype=np.float32)
            padded[: a.vocab_size] = np.maximum(odds[row, c] * p * draft_total - q * total, 0)
            left[row, c] = padded.reshape(num_blocks, a.block_size).sum(axis=1) / (total * draft_total)
