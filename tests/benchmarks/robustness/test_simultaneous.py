"""The same command, run in four processes at the same time.

`benchmarks.robustness.simultaneous` plays 200 rounds of each case.
"""

import subprocess
import sys
from collections.abc import Iterable

from benchmarks.robustness.simultaneous import CASES
from cluster.dispatch.origin import ROOT

CHEAP = ("run", "abandoned campaign", "seen.json")


def play(cases: Iterable[str], rounds: int, *more: str) -> None:
    """Run rounds of cases in a separate process, because each round forks."""
    words = ["--rounds", str(rounds), *more, *(word for case in cases for word in ("--case", case))]
    asked = [sys.executable, "-m", "benchmarks.robustness.simultaneous", *words]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("; 0 ended wrongly\n") == len(list(cases))


def test_four_processes_of_one_command_lose_no_data() -> None:
    play(CHEAP, 10)


def test_four_processes_lose_no_data_if_one_is_killed() -> None:
    play(CASES, 3, "--kill")
