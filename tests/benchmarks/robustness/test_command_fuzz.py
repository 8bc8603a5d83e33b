"""Fuzzing of the command line with a few seeds.

`python -m benchmarks.robustness.command_fuzz` runs 2,000.
"""

import subprocess
import sys

from benchmarks.robustness.command_fuzz import CODES, Outcome
from cluster.dispatch.origin import ROOT

RUNS = 100


def test_fuzzed_command_lines_exit_with_documented_codes() -> None:
    # In a separate process: a command may load Ray, which reads its authentication mode once per process.
    asked = [sys.executable, "-m", "benchmarks.robustness.command_fuzz", "--runs", str(RUNS)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, said = done.stdout.splitlines()
    assert said.startswith(f"{RUNS} runs in ")
    assert said.endswith("; 0 ended wrongly")
    assert all(f" x {code}" in said for code in (0, 2))


def test_outcome_is_wrong_with_undocumented_code_or_traceback() -> None:
    assert not any(Outcome((), code, "").is_wrong for code in CODES)
    assert Outcome((), 4, "").is_wrong
    assert Outcome((), "SystemExit(0)", "").is_wrong
    assert Outcome((), 3, "Traceback (most recent call last):").is_wrong
