"""Verify drafts against the target model."""

from math import inf

from workers.kernels.arithmetic.vectorised import multiples
from workers.kernels.rejection_sample.arguments import RejectionSample
from workers.kernels.sentinels import NO_TOKEN


def rejection_sample(a: RejectionSample) -> None:
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus."""
    k, width = a.num_speculative_tokens, 1 + a.num_speculative_tokens
    target = a.logits.reshape(-1, a.vocab_size).argmax(axis=1)
    # The largest of a line with NaN is NaN.
    largest = a.logits.take(multiples(len(target), a.vocab_size) + target).tolist()
    tokens, drafts = target.tolist(), a.scheduled_drafts.tolist()
    a.sampled.fill(NO_TOKEN)
    rows = zip(a.num_scheduled.tolist(), a.invalid.tolist(), a.num_drafts.tolist(), strict=True)
    for row, (num_scheduled, invalid, num_drafts) in enumerate(rows):
        if num_scheduled == 0 or invalid > 0:
            continue
        for column in range(width):
            line = row * width + column
            if not -inf < largest[line] < inf:
                break
            a.sampled[line] = tokens[line]
            if column == num_drafts or drafts[row * k + column] != tokens[line]:
                break
