"""Measure the size of the report page and the time to write and open it, for many results.

Run with `python -m benchmarks.speed.report_page`. The results are copies of one real judgement under other names, one
in a thousand a finding; opening is measured in a headless Chromium, from navigation until everything is loaded and
painted, as the median of several loads.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from cluster.cli.main import run
from cluster.dispatch.job import Job
from cluster.dispatch.origin import ROOT
from cluster.storage.store import Store
from scenarios import codec
from tests.cluster.reports.page.browser import Browser, browser_path
from workers.record.verdict import Judgement
from workers.run.worker import Worker

RESULTS = 100_000
FINDING_EVERY = 1000
LOADS = 5
BATCH = 5000
LOAD_MS = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
    const load = performance.getEntriesByType('navigation')[0];
    done([load.loadEventEnd, performance.now()]);
})))"""
# Types part of a name into the filter, and counts the rows that remain in the page.
FILTER = """(() => {
    const form = document.querySelector('.filter');
    form.elements.text.value = NAME;
    form.dispatchEvent(new Event('input'));
    return document.querySelectorAll('.results tbody tr').length;
})()"""


def judgements() -> tuple[Judgement, Judgement]:
    """Return two judgements to fill a campaign with: one agrees, one diverges."""
    worker = Worker()
    agreed = codec.load(ROOT / "scenarios/smoke/abort_in_flight.yaml")
    faulty = codec.load(ROOT / "scenarios/regressions/vllm-38556-accepted-counts.yaml")
    return worker.judge(agreed, False), worker.judge(faulty, False)


def fill(folder: Path, count: int) -> None:
    """Write a campaign with `count` results of scenarios."""
    agreed, found = judgements()
    with Store(folder) as store:
        for start in range(0, count, BATCH):
            with store.transaction():
                for number in range(start, min(start + BATCH, count)):
                    judgement = agreed if number % FINDING_EVERY else found
                    key = f"{number:032x}"
                    job = Job(key=key, trace=judgement.trace, sweep=True)
                    store.begin_attempt(key, 1, 0)
                    store.record(
                        job, 1, judgement, f"scenarios/generated/part_{number // 1000:03d}/trace_{number:06d}.yaml"
                    )


def measure(folder: Path, count: int) -> None:
    """Write the report of a campaign, open it, and print the times."""
    begin = time.monotonic()
    assert run(["report", str(folder)]) == 0
    written = time.monotonic() - begin
    page = folder / "report.html"
    print(f"{count:,} results: written in {written:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
    path = browser_path()
    if path is None:
        print("not opened: Chromium is not installed")
        return
    with Browser(path) as browser:
        loads = []
        for _ in range(LOADS):
            browser.open(page, 1280, 900)
            loads.append(browser.evaluate(LOAD_MS))
        names = ("loaded", "drawn")
        shown = ", ".join(f"{name} {median(load[at] for load in loads):.0f} ms" for at, name in enumerate(names))
        print(f"opened, median of {LOADS}: {shown}")
        begin = time.monotonic()
        num_seen = browser.evaluate(FILTER.replace("NAME", f"'trace_{count - 1:06d}'"))
        print(f"filtered in {1000 * (time.monotonic() - begin):.0f} ms, to {num_seen} of them")
        assert not browser.complaints, browser.complaints


def main() -> None:
    """Fill a campaign, write its report page, open it, and print size and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=RESULTS)
    count = parser.parse_args().results
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), count)
        measure(Path(folder), count)


if __name__ == "__main__":
    main()
