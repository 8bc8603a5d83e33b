"""Descriptions of probes: a report lists some of them in any order, so each must be clear without the others."""

import re

import pytest

from scenarios.probes import PROBES

OF_ANOTHER = re.compile(
    r"^(such|those|it|one is|what follows)\b|\bsuch (a|an|steps?|requests?)\b|\bthe (former|latter)\b|\bof them\b"
)


@pytest.mark.parametrize("probe", PROBES)
def test_probe_description_refers_to_no_other_probe(probe: str) -> None:
    assert OF_ANOTHER.search(PROBES[probe]) is None


def test_probe_descriptions_are_unique() -> None:
    assert len(set(PROBES.values())) == len(PROBES)
