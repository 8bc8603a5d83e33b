"""Print verdict and observation digest of every scenario and of random traces.

The engine is specstorm, without faults.

Run `python -m benchmarks.conformance.digests > FILE` in two source trees: a change that is meant to change nothing
gives the same file, to the byte. A line has the trace's name, the kind of its verdict, the number of steps, commits and
compared observations, the hash of all observations, and the bug of a finding. Scenarios keep their faults; scenarios
that engine specstorm does not support are skipped.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.generation.base import random_trace
from scenarios.trace import Trace
from workers.record.verdict import Lost
from workers.run.worker import Worker
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import target_kind
from workers.targets.target import SPECSTORM

FOLDERS = ("scenarios",)
NUM_RANDOM = 300


def traces(num_random: int, folders: list[str]) -> Iterator[tuple[str, Trace]]:
    """Yield name and trace of each scenario that specstorm supports, then of random traces."""
    capabilities = target_kind(SPECSTORM).capabilities
    for path in find_scenarios([Path(folder) for folder in folders]):
        trace = load(path)
        if lacking(trace, capabilities) is None:
            yield path.stem, trace
    for seed in range(num_random):
        yield f"random {seed}", random_trace(seed)


def line(name: str, trace: Trace, worker: Worker) -> str:
    """Return a trace's verdict, counts, digest of observations and bug as one line of text."""
    judgement = worker.judge(trace, sweep=False)
    verdict = judgement.verdict
    assert not isinstance(verdict, Lost), verdict
    stats = verdict.stats
    signature = signature_of(verdict, judgement.trace)
    bug = "-" if signature is None else signature.bug
    return f"{name}: {verdict.kind} {stats.steps} {stats.commits} {stats.captures} {stats.digest} {bug}"


def main() -> None:
    """Print verdict and observation digest of each scenario and random trace, one per line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=NUM_RANDOM, metavar="N", help="random traces (default: 300)")
    parser.add_argument("folders", nargs="*", default=list(FOLDERS), metavar="FOLDER")
    asked = parser.parse_args()
    worker = Worker()
    for name, trace in traces(asked.random, asked.folders):
        print(line(name, trace, worker), flush=True)


if __name__ == "__main__":
    main()
