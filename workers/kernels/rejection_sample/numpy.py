"""Greedy rejection sampler: verify draft tokens against the target model's argmax."""

from math import isfinite

from workers.kernels.arithmetic.numpy import multiples
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.kernels.sentinels import NO_TOKEN


def rejection_sample(a: RejectionSample) -> None:
    k, width = a.num_speculative_tokens, 1 + a.num_speculative_tokens
    target = a.logits.reshape(-1, a.vocab_size).argmax(axis=1)
    # The largest logit of a row with NaN is NaN.
    largest = a.logits.take(multiples(len(target), a.vocab_size) + target).tolist()
    tokens, drafts = target.tolist(), a.scheduled_drafts.tolist()
    a.sampled.fill(NO_TOKEN)
    rows = zip(a.num_scheduled.tolist(), a.invalid.tolist(), a.num_drafts.tolist(), strict=True)
    for row, (num_scheduled, invalid, num_drafts) in enumerate(rows):
        if num_scheduled == 0 or invalid > 0:
            continue
        # NO_TOKEN after the last draft token differs from every token.
        for line, draft in enumerate([*drafts[row * k : row * k + num_drafts], NO_TOKEN], row * width):
            if not isfinite(largest[line]):
                break
            a.sampled[line] = token = tokens[line]
            if draft != token:
                break
