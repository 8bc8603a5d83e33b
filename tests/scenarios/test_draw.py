"""Labelled random numbers are Philox4x32-10, a function of their label only."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.draw import below, draw, philox4x32

MASK = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_returns_published_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, int, int, int]
) -> None:
    assert philox4x32(counter, key) == words


def test_every_part_of_a_label_changes_the_number() -> None:
    labels = [(1, "a", "b", 0), (2, "a", "b", 0), (1, "c", "b", 0), (1, "a", "d", 0), (1, "a", "b", 1)]
    labels += [(1, "ab", "", 0), (1, "", "ab", 0), (1 + (1 << 32), "a", "b", 0), (1, "a", "b", 1 << 32)]
    assert len({draw(*label) for label in labels}) == len(labels)


@settings(max_examples=200)
@given(st.integers(1, 1 << 32), st.integers(0, 1 << 63), st.text(max_size=8), st.integers(0, 1 << 63))
def test_below_returns_number_below_its_bound(bound: int, seed: int, key: str, index: int) -> None:
    assert 0 <= below(bound, seed, "site", key, index) < bound


def test_below_returns_all_numbers_about_equally_often() -> None:
    counts = Counter(below(7, 3, "site", "key", index) for index in range(7000))
    assert sorted(counts) == list(range(7))
    # Six standard deviations of a binomial count with mean 1000.
    assert max(abs(count - 1000) for count in counts.values()) < 180
