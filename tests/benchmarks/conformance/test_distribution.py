"""What runs commit follows the target under every method and drafter; a sampler that leaks 2 % is found."""

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
def test_laws_add_up(case: Case) -> None:
    spec = trace_of(case, KINDS, 0, 4, ()).spec
    for kind in KINDS:
        for window in WINDOWS:
            assert sum(law_of(kind, window, spec).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_committed_tokens_follow_the_target_beside_neighbours_preemptions_and_reorders(case: Case) -> None:
    happened: Counter[str] = Counter()
    assert not [result.line() for result in results(case, 480, (), happened) if result.is_failed]
    assert [probe for probe in MUST_HAPPEN if not happened[probe]] == []


def test_a_sampler_that_leaks_is_found_and_the_sound_one_passes_as_often() -> None:
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
def test_the_requests_of_any_trace_are_drawn_as_without_speculation(
    scenario: str, fault: str | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).resolve().parents[3] / "scenarios" / "smoke" / f"{scenario}.yaml"
    assert against_itself(path, "specstorm", 80, fault) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
