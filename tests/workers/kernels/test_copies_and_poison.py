"""Copies between host and device, and poison."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import INT_POISON, call, int_poison, integers, word_poison, words
from workers.kernels.copies import vectorised as copies
from workers.kernels.poison.vectorised import poison
from workers.kernels.sentinels import POISON


@pytest.mark.parametrize(
    ("copy", "name"),
    [
        (copies.copy_inputs, "source"),
        (copies.copy_script, "source"),
        (copies.copy_output, "sampled"),
        (copies.copy_counts, "valid"),
        (copies.copy_accepted, "accepted"),
    ],
)
def test_a_copy_copies_everything(copy: Any, name: str) -> None:
    arguments = {name: integers([4, INT_POISON, -1]), "destination": int_poison(3)}
    assert call(copy, **arguments)["destination"].tolist() == [4, INT_POISON, -1]


@pytest.mark.parametrize("block_size", [1, 3])
def test_poison_overwrites_the_listed_blocks_of_both_caches_and_nothing_else(block_size: int) -> None:
    rng = np.random.default_rng(block_size)
    kv, drafter_kv = words(rng, 6 * block_size), words(rng, 6 * block_size)
    for listed in ([], [0], [5], [4, 1, 0]):
        found = call(
            poison,
            blocks=integers([*listed, *int_poison(3)]),
            kv=kv,
            drafter_kv=drafter_kv,
            num_blocks=len(listed),
            block_size=block_size,
        )
        for name, before in (("kv", kv), ("drafter_kv", drafter_kv)):
            expected = [POISON if slot // block_size in listed else before[slot] for slot in range(len(before))]
            assert found[name].tolist() == expected
    assert word_poison(1).tolist() == [POISON]
