"""Traces to detection of every fault, by where the traces come from: `python -m benchmarks.detection --trials 3`.

Sources: either generator of a hunt, their mixture, and two that learn within a trial: a trace that reaches something
for the first time is kept, and a quarter of the traces are variants of kept ones. `planes` keeps who reaches a new
combination of event, plane and policy, `probes` who hits a probe that no trace before it hit. All sources of a trial
have the same seed; a learning one has the mixture's traces where it draws no variant.

Prints a row for each source, the faults that take longest with the median of each source, and for each learning source
how often it was faster and slower than the mixture on those, with the two-sided sign test.
"""

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from itertools import islice
from math import comb
from multiprocessing import get_context
from typing import NamedTuple, TypeAlias, get_args

from scenarios.draw import below
from scenarios.shards import Profile, fitted, traces_of
from scenarios.trace import Trace
from scenarios.variants import variant
from workers.faults.registry import FAULTS
from workers.oracle.tape import Tapes
from workers.record.verdict import Lost, Stats
from workers.run.check import check
from workers.run.process import prepare_process
from workers.shrink.fingerprint import signature_of

LEARNING = ("planes", "probes")
SOURCES = (*get_args(Profile), *LEARNING)
# One trace of so many is a variant where a source learns.
VARIANT_EVERY = 4
SLOWEST = 20
Reached: TypeAlias = frozenset[tuple[str, ...]]


class Trial(NamedTuple):
    """Traces until a fault was found by a source in a trial; more than were tried where none of them found it."""

    fault: str
    source: str
    number: int
    at: int


def reached_by(source: str, trace: Trace, stats: Stats) -> Reached:
    """Return what a source learns from: combinations of event, plane and policy, or probes."""
    if source == "probes":
        return frozenset((probe,) for probe in stats.probes)
    events = {event.do for event in trace.events}
    return frozenset((event, plane, trace.schedule.policy) for event in events for plane in stats.planes)


class Learner:
    """Traces of the mixture, some of them replaced by variants of those that reached something first."""

    def __init__(self, source: str, seed: int) -> None:
        self._source, self._seed = source, seed
        self.kept: list[Trace] = []
        self._reached: set[tuple[str, ...]] = set()

    def trace(self, fresh: Trace, index: int) -> Trace:
        """Return a fresh trace, or a variant of a kept one."""
        if not self.kept or below(VARIANT_EVERY, self._seed, "learner", "varies", index):
            return fresh
        parent = self.kept[below(len(self.kept), self._seed, "learner", "parent", index)]
        return variant(parent, fresh, self._seed << 32 | index)

    def learn(self, trace: Trace, stats: Stats) -> None:
        """Keep a trace that reached something first."""
        new = reached_by(self._source, trace, stats) - self._reached
        self._reached |= new
        if new:
            self.kept.append(trace)


def trial(fault: str, source: str, number: int, traces_max: int) -> Trial:
    """Run traces of a source until the fault is found."""
    tapes, learner = Tapes(), Learner(source, number)
    profile: Profile = "mixed" if source in LEARNING else source  # type: ignore[assignment]
    for index, fresh in enumerate(islice(traces_of(number, profile), traces_max)):
        wanted = learner.trace(fresh, index) if source in LEARNING else fresh
        trace = fitted(wanted, FAULTS[fault].requires, (fault,)).explicit()
        if FAULTS[fault].missing(trace.spec) is not None:
            continue
        verdict = check(trace, tapes)
        assert not isinstance(verdict, Lost), verdict
        if signature_of(verdict, trace) is not None:
            return Trial(fault, source, number, index + 1)
        learner.learn(trace, verdict.stats)
    return Trial(fault, source, number, traces_max + 1)


def _trial(arguments: tuple[str, str, int, int]) -> Trial:
    prepare_process()
    return trial(*arguments)


def trials_of(
    faults: Sequence[str], sources: Sequence[str], count: int, traces_max: int, processes: int
) -> Iterator[Trial]:
    """Run the trials of some faults in some processes, and yield them as they end."""
    wanted = [(fault, source, number, traces_max) for number in range(count) for fault in faults for source in sources]
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_trial, wanted)


def sign_test(faster: int, slower: int) -> float:
    """Return how likely as uneven a share of faster and slower trials is if neither is more likely."""
    count, least = faster + slower, min(faster, slower)
    return min(1.0, sum(comb(count, k) for k in range(least + 1)) * 2.0 ** (1 - count))


def print_results(found: Sequence[Trial], faults: Sequence[str], sources: Sequence[str], traces_max: int) -> None:
    """Print what every source came to, and the faults that take longest."""
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
    for source in (each for each in sources if each in LEARNING and "mixed" in sources):
        for name, some in (("all faults", faults), (f"the {len(last)} slowest", last)):
            print(f"{source} beside mixed, {name}: {compared(found, source, some)}")


def compared(found: Sequence[Trial], source: str, faults: Sequence[str]) -> str:
    """Return how the trials of a source went on some faults beside those of the mixture with the same seeds."""
    mixed = {(each.fault, each.number): each.at for each in found if each.source == "mixed"}
    pairs = [
        (each.at, mixed[each.fault, each.number]) for each in found if each.source == source and each.fault in faults
    ]
    faster, slower = sum(here < other for here, other in pairs), sum(here > other for here, other in pairs)
    ratio = sum(here for here, _ in pairs) / sum(other for _, other in pairs)
    odds = f"p {sign_test(faster, slower):.2g}"
    return f"faster in {faster}, slower in {slower} of {len(pairs)} trials ({odds}); {ratio:.2f} x the traces"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3, help="trials of a fault and source (default 3)")
    parser.add_argument("--traces", type=int, default=200, help="traces at most in a trial (default 200)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: one for each CPU")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="this fault instead")
    parser.add_argument("--source", action="append", choices=SOURCES, help="this source instead of all")
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
