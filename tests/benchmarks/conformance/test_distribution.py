"""Sampled tokens follow the target under every method and drafter; bias is found.

The biased sampler leaks 2 % of the probability.
"""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.conformance.distribution import (
    CASES,
    KINDS,
    MUST_HAPPEN,
    WINDOWS,
    Case,
    against_itself,
    law_of,
    results,
    trace_of,
)

LEAK = "specstorm-sampler-leak"


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_law_probabilities_sum_to_one(case: Case) -> None:
    spec = trace_of(case, KINDS, 0, 4, ()).spec
    for kind in KINDS:
        for window in WINDOWS:
            assert sum(law_of(kind, window, spec).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_committed_tokens_follow_target_with_preemptions_and_reorders(case: Case) -> None:
    happened: Counter[str] = Counter()
    assert not [result.line() for result in results(case, 480, (), happened) if result.is_failed]
    assert [probe for probe in MUST_HAPPEN if not happened[probe]] == []


def test_leaking_sampler_fails_and_sound_sampler_passes() -> None:
    kinds = KINDS[:1]
    assert any(result.is_failed for result in results(CASES[0], 2000, (LEAK,), Counter(), kinds))
    assert not any(result.is_failed for result in results(CASES[0], 2000, (), Counter(), kinds))


@pytest.mark.parametrize(
    ("scenario", "fault", "code", "said"),
    [
        ("drafts_kept_by_chance", None, 0, "agreed: "),
        ("drafts_kept_by_chance", "ascend-13470-no-noise", 1, "distribution is different"),
        ("burst", None, 2, "no request has a temperature"),
    ],
)
def test_against_itself_compares_trace_with_run_without_speculation(
    scenario: str, fault: str | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).resolve().parents[3] / "scenarios" / "smoke" / f"{scenario}.yaml"
    assert against_itself(path, "specstorm", 80, fault) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
