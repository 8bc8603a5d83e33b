"""Measure the number of traces until each fault is found, per generator of the traces.

Run with `python -m benchmarks.power.detection --trials 10`.
Sources: each of a hunt's two generators, and their mixture. All sources of a trial have the same seed.

Prints a row for each source, and the faults that take longest with the median of each source.
"""

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple, get_args

from scenarios.generation.shards import Profile, traces_of, with_faults
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.run.process import prepare_process
from workers.run.trials import run_with_fault

SOURCES: tuple[Profile, ...] = get_args(Profile)
SLOWEST = 20


class Trial(NamedTuple):
    """The number of traces of one source until a fault was found; limit + 1 if it was not."""

    fault: str
    source: str
    number: int
    at: int


def trial(fault: str, source: Profile, number: int, traces_max: int) -> Trial:
    """Return how many traces of a source run until one reveals the fault."""
    value_cache = ModelValueCache()
    for index, fresh in enumerate(islice(traces_of(number, source), traces_max)):
        trace = with_faults(fresh, FAULTS[fault].requires, (fault,)).explicit()
        if run_with_fault(fault, trace, value_cache).plane:
            return Trial(fault, source, number, index + 1)
    return Trial(fault, source, number, traces_max + 1)


def _trial(arguments: tuple[str, Profile, int, int]) -> Trial:
    prepare_process()
    return trial(*arguments)


def trials_of(
    faults: Sequence[str], sources: Sequence[Profile], count: int, traces_max: int, processes: int
) -> Iterator[Trial]:
    """Run trials of the given faults in several processes; yield each trial as it ends."""
    wanted = [(fault, source, number, traces_max) for number in range(count) for fault in faults for source in sources]
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_trial, wanted)


def print_results(found: Sequence[Trial], faults: Sequence[str], sources: Sequence[str], traces_max: int) -> None:
    """Print a summary of each source, and the faults that take longest."""
    ats = {
        (fault, source): [each.at for each in found if (each.fault, each.source) == (fault, source)]
        for fault in faults
        for source in sources
    }
    medians = {key: statistics.median(values) for key, values in ats.items()}
    print(f"{'source':<12} {'trials':>7} {'found':>7} {'median':>7} {'mean':>7} {'90 %':>6} {'slowest median':>15}")
    for source in sources:
        here = sorted(each.at for each in found if each.source == source)
        slowest = max(faults, key=lambda fault: medians[fault, source])
        missed = sum(at > traces_max for at in here)
        print(
            f"{source:<12} {len(here):>7} {len(here) - missed:>7} {statistics.median(here):>7} "
            f"{statistics.mean(here):>7.2f} {here[int(0.9 * len(here))]:>6} {medians[slowest, source]:>6} {slowest}"
        )
    last = sorted(faults, key=lambda fault: -statistics.mean(at for source in sources for at in ats[fault, source]))
    last = last[:SLOWEST]
    print(f"\n{f'median traces of the {len(last)} slowest':<44} " + " ".join(f"{source:>10}" for source in sources))
    for fault in last:
        print(f"{fault:<44} " + " ".join(f"{medians[fault, source]:>10}" for source in sources))


def main() -> None:
    """Measure and print the traces until each fault is found, for each source of traces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3, help="trials for each fault and source (default 3)")
    parser.add_argument("--traces", type=int, default=200, help="traces of a trial at most (default 200)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: one for each CPU")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    parser.add_argument("--source", action="append", choices=SOURCES, help="only this source")
    options = parser.parse_args()
    faults, sources = options.fault or sorted(FAULTS), options.source or SOURCES
    found = []
    for done in trials_of(faults, sources, options.trials, options.traces, options.processes):
        found.append(done)
        if len(found) % 500 == 0:
            print(f"{len(found)} trials", flush=True)
    print_results(found, faults, sources, options.traces)


if __name__ == "__main__":
    main()
