"""Kill or stop each process of Ray in a campaign: it continues, or ends with a cause.

`python -m benchmarks.robustness.ray_parts --times 3`. Runs on a private Ray and on a joined head. A campaign either
continues, or ends with exit code 3, a cause and a command; that command must then reach the results of an undisturbed
campaign. Exit code 1 if any check fails.
"""

import argparse
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.cluster.jobs.head import ROOT, Head, running_head
from tests.cluster.processes import descendants

# Substring of the command line of each process.
PARTS = {
    "worker": "ray::EngineHost",
    "raylet": "/raylet/raylet",
    "GCS": "/gcs/gcs_server",
    "dashboard": "/dashboard/dashboard.py",
    "dashboard agent": "ray::DashboardAgent",
    "runtime environment agent": "ray::RuntimeEnvAgent",
    "log monitor": "/log_monitor.py",
    "autoscaler's monitor": "/autoscaler/_private/monitor.py",
    "driver": "",
}
# Processes that a driver cannot work without are also stopped (SIGSTOP).
STOPPABLE = ("GCS", "raylet")
NUM_SCENARIOS = 6
SECONDS_MAX = 60.0
# Ray's agents try for 60 s to report the death of their raylet to the GCS, also if the GCS is dead.
END_SECONDS = 120.0
START_SECONDS = 400.0
ROWS = "SELECT job, scenario, verdict, digest, artefact, judgement FROM results ORDER BY job"
Rows: TypeAlias = list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Kill:
    """Outcome of a campaign with a killed Ray process; `wrong` is "" if it is as specified."""

    part: str
    by: signal.Signals
    code: int
    seconds: float
    said: str
    wrong: str


def command(ray: str, out: Path) -> list[str]:
    """Return the command of a campaign; with `off` it runs in one process, without Ray."""
    paths = sorted(map(str, (ROOT / "scenarios" / "smoke").glob("*.yaml")))[:NUM_SCENARIOS]
    words = ["run", *paths, "--ray", ray, "--workers", "1" if ray == "off" else "2", "--out", str(out)]
    return [sys.executable, "-m", "cluster", *words]


class RayPlace:
    """The Ray cluster of the campaigns: private to each campaign, or joined by address."""

    def __init__(self, head: Head | None, folder: Path) -> None:
        self._head = head
        self.folder = folder
        self._address = "local" if head is None else head.gcs

    def start(self, out: Path) -> "subprocess.Popen[str]":
        """Start the process of a campaign on this Ray."""
        return subprocess.Popen(
            command(self._address, out),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables of a campaign's command."""
        if self._head is None:
            kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
            return {**kept, "PYTHONPATH": str(ROOT)}
        return {**self._head.environment, "RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

    def pid_of(self, part: str, driver: int) -> int | None:
        """Return the process id of one of Ray's parts, such as the raylet."""
        if part == "driver":
            return driver
        for pid in sorted(descendants(driver if self._head is None else self._head.pid)):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if PARTS[part] in line.replace("\0", " "):
                return pid
        return None


@contextmanager
def place(joined: bool) -> Iterator[RayPlace]:
    """Start a Ray to join, or use private ones, for a `with` block."""
    with tempfile.TemporaryDirectory() as folder, running_head() if joined else nullcontext() as head:
        yield RayPlace(head, Path(folder))


def undisturbed() -> Rows:
    """Return the results of a campaign without kills, which do not depend on Ray."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "calm")
        environment = RayPlace(None, out).environment
        subprocess.run(command("off", out), env=environment, capture_output=True, timeout=START_SECONDS, check=True)
        return rows(out)


def killed(ray: RayPlace, part: str, calm: Rows, by: signal.Signals = signal.SIGKILL, resume_on: str = "local") -> Kill:
    """Kill or stop one Ray process during a campaign, resume it, and return the outcome.

    The campaign is resumed on a private Ray (`resume_on="local"`) or without Ray (`"off"`).
    """
    out = ray.folder / f"killed-{time.monotonic_ns()}"
    process = ray.start(out)
    end = time.monotonic() + START_SECONDS
    while num_results(out) < 1 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    pid = ray.pid_of(part, process.pid)
    if pid is None or process.poll() is not None:
        process.kill()
        return Kill(part, by, process.wait(), 0.0, "", f"no process to kill: {process.communicate()[1]}")
    below = descendants(process.pid)
    os.kill(pid, by)
    begun = time.monotonic()
    try:
        _, err = process.communicate(timeout=2 * SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
    with suppress(ProcessLookupError):
        # A stopped process has not ended.
        os.kill(pid, signal.SIGKILL)
    seconds, code = time.monotonic() - begun, process.returncode
    said = " ".join(line for line in err.splitlines() if line.startswith("specstorm: "))
    words = [str(word) for word in process.args[1:]]  # type: ignore[index]
    if part == "driver":
        alive = still_alive(below)
        wrong = f"{len(alive)} of {len(below)} processes are alive after {END_SECONDS:g} s" if alive else ""
        wrong = wrong if code == -signal.SIGKILL else f"exit code {code}"
    else:
        wrong = _end_of(code, seconds, said, words, out)
    wrong = wrong or _after(resume_on, out, calm)
    return Kill(part, by, code, seconds, said, wrong and f"{wrong}\n{err}")


def still_alive(pids: set[int]) -> set[int]:
    """Return the processes still alive after `END_SECONDS`; return at once if all have ended."""
    end = time.monotonic() + END_SECONDS
    while (alive := {pid for pid in pids if Path(f"/proc/{pid}").exists()}) and time.monotonic() < end:
        time.sleep(0.1)
    return alive


def _end_of(code: int, seconds: float, said: str, words: list[str], out: Path) -> str:
    """Return what is wrong with the end of a disturbed campaign, or ""."""
    if code not in (0, 3):
        return f"exit code {code}"
    if code == 3 and not re.search(r"specstorm: Ray's (GCS|raylet) .*: no answer for ", said):
        return "the output names no cause"
    if code == 3 and shlex.join(words[2:]) not in said.partition("; continue with: ")[2]:
        return "the output has no command to resume"
    if code == 3 and seconds > SECONDS_MAX:
        return f"it took {seconds:.0f} s"
    left = sorted(path.name for path in out.glob("campaign.sqlite*"))
    return "" if left == ["campaign.sqlite"] else f"the campaign was not closed: {', '.join(left)}"


def _after(ray: str, out: Path, calm: Rows) -> str:
    """Return what is wrong with a resumed campaign, or ""."""
    kept = num_results(out)
    again = subprocess.run(
        command(ray, out),
        capture_output=True,
        text=True,
        env=RayPlace(None, out).environment,
        timeout=START_SECONDS,
        check=False,
    )
    if again.returncode != 0:
        return f"resumed: exit code {again.returncode}: {again.stderr}"
    if f"kept from an earlier run: {kept} of {NUM_SCENARIOS}" not in again.stdout:
        return f"resumed with {kept} results: {again.stdout}"
    return "" if rows(out) == calm else "the resumed campaign has other results than an undisturbed one"


def rows(folder: Path) -> Rows:
    """Return the stored results of a campaign."""
    with closing(sqlite3.connect(f"file:{folder / 'campaign.sqlite'}?mode=ro", uri=True)) as database:
        return database.execute(ROWS).fetchall()


def num_results(folder: Path) -> int:
    """Return the number of stored results of a campaign, which may still be running."""
    try:
        return len(rows(folder))
    except sqlite3.Error:
        return 0


def main() -> int:
    """Kill each Ray process in a campaign and print the outcomes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="kills of each part (default 3)")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="default: all")
    parser.add_argument("--place", action="append", choices=["private", "joined"], help="default: both")
    arguments = parser.parse_args()
    kills: list[Kill] = []
    calm = undisturbed()
    for where in arguments.place or ["private", "joined"]:
        parts = arguments.part or list(PARTS)
        ways = [(part, signal.SIGKILL) for part in parts]
        ways += [(part, signal.SIGSTOP) for part in parts if part in STOPPABLE]
        for part, by in ways * arguments.times:
            # A head does not survive the loss of its processes.
            with place(where == "joined") as ray:
                kills.append(killed(ray, part, calm, by))
            kill = kills[-1]
            ended = f"exit code {kill.code:>2} after {kill.seconds:5.1f} s"
            print(f"{where:<8} {part:<26} {by.name:<8} {ended}  {kill.wrong or kill.said}", flush=True)
    return 1 if any(kill.wrong for kill in kills) else 0


if __name__ == "__main__":
    sys.exit(main())
