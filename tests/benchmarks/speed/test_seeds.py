"""Old and new forms of the changed seed functions give equal values."""

import numpy as np
import torch

from benchmarks.speed.seeds import accepted_count, backup_tokens

NUM_INPUTS = 10_000


def test_accepted_counts_are_equal_on_10_000_random_rows() -> None:
    counts = set()
    for width in (1, 2, 4, 9):
        sampled = accepted_count.sampled_tokens(NUM_INPUTS // 4, width, "cpu", seed=width)
        before, after = accepted_count.first_gap(sampled), accepted_count.number_of_tokens(sampled)
        assert torch.equal(before, after)
        counts |= set(after.tolist())
    assert counts == set(range(10))


def test_backup_token_forms_write_equal_values_10_000_times() -> None:
    unknown = 0
    for seed in range(NUM_INPUTS):
        requests, known = backup_tokens.requests_of(1 + seed % 16, seed)
        written = []
        for form in backup_tokens.FORMS.values():
            backup = np.full(16, -7, dtype=np.int32)
            form(requests, known, backup)
            written.append(backup)
        assert all(np.array_equal(written[0], other) for other in written[1:])
        assert (written[0][len(requests) :] == -7).all()
        unknown += int((written[0] == -1).sum())
    assert unknown > 0
