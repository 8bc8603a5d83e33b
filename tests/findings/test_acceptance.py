"""Measurement of accepted draft tokens: sums over steps, and names of findings."""

import pytest

from findings.acceptance import Acceptance, acceptance_of, main
from workers.record.engine_records import Counted, CountedValues


def counted(step: int, *counts: int) -> Counted:
    return Counted(step=step, requests=(), values=CountedValues(counted=[*counts]))


def test_acceptance_of_two_steps_is_the_sum_of_their_metrics() -> None:
    assert acceptance_of([counted(0, 1, 3, 2), counted(1, 2, 6, 1)]) == Acceptance(accepted=3, drafts=9, rows=3)
    assert acceptance_of([]) == Acceptance(0, 0, 0)


def test_acceptance_of_a_finding_without_a_trace_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "nothing has no acceptance.yaml; allowed: " in capsys.readouterr().err
