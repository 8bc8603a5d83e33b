"""Kill the driver of a campaign in each phase; its processes must end and it must resume.

`python -m benchmarks.robustness.driver_kills --ray local`. Each command, with or without a private Ray, gets SIGKILL
when its folder shows the phase. The same command without Ray must then reach the results, findings and artefacts of a
campaign that was not disturbed. Exit code 1 if any check fails.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.robustness.ray_parts import END_SECONDS, START_SECONDS, RayPlace, still_alive
from cluster.storage.lines import RESULTS
from tests.cluster.jobs.head import ROOT
from tests.cluster.processes import descendants

FAULT = "vllm-38556-accepted-counts"
HUNT = ("hunt", "--traces", "12", "--fault", FAULT, "--canary", "")
NIGHT = ("nightly", "--hours", "0", "--regressions", "scn", "--nights", "1000000", "--seed", "1", "--canary", "")
NUM_SCENARIOS = 2


class Phase(NamedTuple):
    """A phase of a campaign: the command that reaches it, and a test that detects it."""

    command: tuple[str, ...]
    is_reached: Callable[[Path], bool]


def _count(folder: Path, query: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{folder / 'campaign.sqlite'}?mode=ro", uri=True)) as database:
            return int(database.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 0


_ATTEMPTS, _SHARDS = "SELECT COUNT(*) FROM attempts", "SELECT COUNT(*) FROM shards"
_SHRINKING = 'SELECT COUNT(*) FROM findings WHERE state LIKE \'%"stage":"shrink"%\''
PHASES = {
    "before the first result": Phase(HUNT, lambda folder: _count(folder, _ATTEMPTS) > 0),
    "in the middle": Phase(HUNT, lambda folder: _count(folder, _SHARDS) > 0),
    "while shrinking": Phase(HUNT, lambda folder: _count(folder, _SHRINKING) > 0),
    "while writing the report": Phase(NIGHT, lambda folder: (folder / "report.txt").exists()),
}


def _start(folder: Path, words: tuple[str, ...], ray: str, out: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "cluster", *words, "--ray", ray, "--out", out]
    environment = RayPlace(None, folder).environment
    return subprocess.Popen(
        [*command, "--workers", "1"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def results(folder: Path) -> list[Any]:
    """Return a campaign's results and artefacts, without attempt numbers and run data."""
    found: list[Any] = []
    for path in sorted(folder.rglob(RESULTS)):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        # Runs differ in these: command, attempt, and the duration of a fault's trial.
        found += [{**line, "attempt": 0} for line in lines if line["kind"] not in ("run", "trial")]
    return [*found, *((path.name, path.read_text()) for path in sorted(folder.rglob("artefacts/*.yaml")))]


def killed(folder: Path, phase: Phase, ray: str = "off") -> str:
    """Kill a driver in a phase and run its command again; return what is wrong, or ""."""
    (folder / "scn").mkdir()
    for path in sorted((ROOT / "scenarios" / "smoke").glob("*.yaml"))[:NUM_SCENARIOS]:
        (folder / "scn" / path.name).write_text(path.read_text())
    calm = _start(folder, phase.command, "off", "calm")
    said, _ = calm.communicate(timeout=START_SECONDS)
    process, end = _start(folder, phase.command, ray, "killed"), time.monotonic() + START_SECONDS
    while not phase.is_reached(folder / "killed") and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    below = descendants(process.pid)
    if process.poll() is not None or time.monotonic() > end or not (below or ray == "off"):
        process.kill()
        return f"the phase was not reached: {process.communicate()[0]}"
    process.kill()
    process.wait()
    if alive := still_alive(below):
        return f"{len(alive)} of {len(below)} processes are alive after {END_SECONDS:g} s"
    again = _start(folder, phase.command, "off", "killed")
    text, _ = again.communicate(timeout=START_SECONDS)
    if again.returncode != calm.returncode:
        return f"the second run ended with exit code {again.returncode}, undisturbed {calm.returncode}: {text}{said}"
    left = [path.name for path in (folder / "killed").rglob("*.tmp")]
    if left:
        return f"{', '.join(left)} is left"
    return "" if results(folder / "killed") == results(folder / "calm") else "results differ from an undisturbed run"


def main() -> int:
    """Kill a driver in each phase, run its command again, print failures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", action="append", choices=list(PHASES), help="default: all")
    parser.add_argument("--ray", choices=["off", "local"], default="local", help="default local")
    arguments = parser.parse_args()
    num_wrong = 0
    for name in arguments.phase or PHASES:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            wrong = killed(Path(folder), PHASES[name], arguments.ray)
        print(f"{name:<26} {time.monotonic() - begun:5.0f} s  {wrong or 'complete'}", flush=True)
        num_wrong += bool(wrong)
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
