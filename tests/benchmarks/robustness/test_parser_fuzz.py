"""Fuzzing of parsers with a few seeds.

`python -m benchmarks.robustness.parser_fuzz` runs 10,000 of each.
"""

import random

import pytest

from benchmarks.robustness import parser_fuzz
from benchmarks.robustness.parser_fuzz import PARSERS, mutated, playground, wrong_of
from cluster.dispatch.ray_job import CAMPAIGNS

RUNS = 150


@pytest.mark.parametrize("parser", PARSERS)
def test_fuzzed_inputs_are_read_or_refused_as_documented(parser: str) -> None:
    with playground() as folder:
        wrong = {seed: what for seed in range(RUNS) if (what := wrong_of(parser, seed, folder)) is not None}
    assert wrong == {}


def test_wrong_of_reports_exceptions_and_writes_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rng: random.Random) -> None:
        raise RecursionError("too deep")

    def writes(rng: random.Random) -> None:
        (CAMPAIGNS / "linked" / "file").touch()

    def links(rng: random.Random) -> None:
        (CAMPAIGNS / "a").symlink_to("b")

    monkeypatch.setattr(parser_fuzz, "PARSERS", {"fails": fails, "writes": writes, "links": links})
    with playground() as folder:
        assert wrong_of("fails", 0, folder) == "RecursionError: 'too deep'"
        assert "links: {PosixPath('campaigns/a')}" in str(wrong_of("links", 0, folder))
        assert "outside/file" in str(wrong_of("writes", 0, folder))


def test_mutation_depends_on_the_seed_only() -> None:
    texts = {mutated(b"0123456789", random.Random(seed)) for seed in range(50)}
    assert len(texts) > 25
    assert mutated(b"0123456789", random.Random(7)) == mutated(b"0123456789", random.Random(7))
