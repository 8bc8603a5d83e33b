"""Measure CPU time and memory to open, resume, report and merge a large campaign.

`python -m benchmarks.robustness.large_store --results 200000`. The results are generated as in
`benchmarks.speed.report_page`, and each action runs the code of its command in a separate process. Exit code 1 if an
action loses a result.
"""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.speed.report_page import FINDING_EVERY, fill, judgements
from cluster.campaigns.suite import Scenario, Suite
from cluster.cli.main import run
from cluster.dispatch.job import Job
from cluster.storage.campaign import Campaign
from cluster.storage.lines import RESULTS, write_lines
from cluster.storage.store import Store

RESULTS_DEFAULT = 200_000


def opened(folder: Path, count: int) -> None:
    """Open a large campaign for writing, which checks every row of its database."""
    with Store(folder) as store:
        assert not store.remarks, store.remarks


def resumed(folder: Path, count: int) -> None:
    """Resume a suite of scenarios that all have results."""
    agreed, found = (judgement.trace for judgement in judgements())
    jobs = (Job(key=f"{at:032x}", trace=agreed if at % FINDING_EVERY else found, sweep=True) for at in range(count))
    scenarios = [Scenario(job.key, job) for job in jobs]
    with Store(folder) as store:
        assert Suite(scenarios, store).kept == count


def written(folder: Path, count: int) -> None:
    """Write the results of a campaign as JSON lines."""
    with Store(folder) as store:
        write_lines(store, folder / RESULTS)
    with (folder / RESULTS).open() as lines:
        assert sum(line.startswith('{"kind": "judgement"') for line in lines) == count


def reported(folder: Path, count: int) -> None:
    """Write report.html, junit.xml and report.sarif of a campaign."""
    assert run(["report", str(folder)]) == 0


def merged(folder: Path, count: int) -> None:
    """Merge a campaign into a new one; its findings make the exit code 1."""
    assert run(["merge", str(folder), "--out", f"{folder}-merged"]) == 1
    with Campaign(Path(f"{folder}-merged")) as campaign:
        assert sum(1 for _ in campaign.results()) == count


ACTIONS: Mapping[str, Callable[[Path, int], None]] = {
    "filled": fill,
    "opened and checked": opened,
    "resumed": resumed,
    "written as lines": written,
    "reported": reported,
    "merged": merged,
}


def in_a_process(action: Callable[[Path, int], None], folder: Path, count: int) -> tuple[int, float, int]:
    """Run an action in a forked process; return exit code, CPU seconds and peak memory in kB."""
    pid = os.fork()
    if pid == 0:
        try:
            action(folder, count)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main() -> int:
    """Fill a campaign, measure each action and print its costs; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=RESULTS_DEFAULT)
    count, codes = parser.parse_args().results, []
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "campaign"
        for name, action in ACTIONS.items():
            code, seconds, kilobytes = in_a_process(action, folder, count)
            codes.append(code)
            print(f"{name:<20} {seconds:8.1f} s of CPU time, {kilobytes / 1000:6.0f} MB resident", flush=True)
        size = (folder / "campaign.sqlite").stat().st_size
    print(f"{count:,} results, {size / 1e6:.0f} MB")
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
