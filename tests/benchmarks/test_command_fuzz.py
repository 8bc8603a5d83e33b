"""The fuzz of the command line, for a few of its seeds; `python -m benchmarks.command_fuzz` runs 2,000."""

import pytest

from benchmarks.command_fuzz import CODES, Outcome, fuzzed, playground

RUNS = 100


# The parser of options leaves a file open that it opened before it saw that the line is wrong.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_command_line_ends_with_a_documented_code_and_without_a_traceback() -> None:
    with playground() as folder:
        outcomes = [fuzzed(seed, folder) for seed in range(RUNS)]
    assert [outcome for outcome in outcomes if outcome.is_wrong] == []
    assert {0, 2} <= {outcome.code for outcome in outcomes}
    assert len({outcome.arguments[0] for outcome in outcomes if outcome.arguments}) > 10


def test_an_undocumented_code_and_a_traceback_are_seen() -> None:
    assert not any(Outcome((), code, "").is_wrong for code in CODES)
    assert Outcome((), 4, "").is_wrong
    assert Outcome((), "SystemExit(0)", "").is_wrong
    assert Outcome((), 3, "Traceback (most recent call last):").is_wrong
