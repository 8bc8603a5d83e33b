"""What probes count is said of each alone: a report lists some of them, in any order."""

import re

import pytest

from scenarios.probes import PROBES

OF_ANOTHER = re.compile(
    r"^(such|those|it|one is|what follows)\b|\bsuch (a|an|steps?|requests?)\b|\bthe (former|latter)\b|\bof them\b"
)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_is_understood_without_the_others(probe: str) -> None:
    assert OF_ANOTHER.search(PROBES[probe]) is None


def test_no_two_probes_read_alike() -> None:
    assert len(set(PROBES.values())) == len(PROBES)
