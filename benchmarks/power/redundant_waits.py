"""Remove a redundant wait and run many traces: no race may appear, under any schedule.

`python -m benchmarks.power.redundant_waits --traces 10000 --processes 14`. Each trace runs once, eagerly, with the race
detector; a run without a race proves every schedule of its trace. Exit code 1 at the first trace that is not clean.
"""

import argparse
import multiprocessing
import sys
from collections import Counter
from functools import cache, partial
from typing import Literal

from scenarios.drafters import TRAITS
from scenarios.events import Schedule
from scenarios.generation.base import random_trace
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import specstorm_target

Wait = tuple[str, str]
Configuration = Literal["device", "host"]

# By location of the accepted counts. A wait that is redundant in both configurations would be deleted.
REDUNDANT: dict[Configuration, frozenset[Wait]] = {
    "device": frozenset(),
    # Before the host stages a step it has waited for the counts of the previous step, so the previous step's copy of
    # them has been read before any kernel of this step is launched.
    "host": frozenset({("compute", "counts_done")}),
}
SEEDS_OF_A_TASK = 50


def trace_of(seed: int, accepted_counts: Configuration) -> Trace:
    """Return the random trace of a seed at depth 2 with the eager policy."""
    trace = random_trace(seed)
    drafter = "eagle" if TRAITS[trace.spec.drafter].goes_through_host else trace.spec.drafter
    changes = {"depth": 2, "accepted_counts": accepted_counts, "drafter": drafter}
    spec = trace.spec.model_copy(update=changes)
    return trace.model_copy(update={"spec": spec, "schedule": Schedule()}).explicit()


@cache
def _value_cache() -> ModelValueCache:
    return ModelValueCache()


def run_without(first_seed: int, accepted_counts: Configuration, wait: Wait) -> tuple[Counter[str], str]:
    """Run traces with and without a wait; return counts and the first difference, or "".

    Counted are traces, steps and accesses.
    """
    counts: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + SEEDS_OF_A_TASK):
        trace = trace_of(seed, accepted_counts)
        clean = Run(trace, _value_cache(), Options(races=False))
        wanted = clean.to_end()
        digest = clean.stats().digest
        run = Run(trace, _value_cache(), Options(without=frozenset({wait})))
        seen = run.to_end()
        assert run.detector is not None
        stats = run.stats()
        if wanted is not None or seen is not None or stats.digest != digest:
            return counts, f"seed {seed} without {wait}: {seen}, {stats.digest}; with it: {wanted}, {digest}"
        counts.update(traces=1, waiting=wait in specstorm_target(clean.target).machine.seen_waits)
        counts.update(steps=stats.steps, accesses=run.detector.num_accesses)
    return counts, ""


def main() -> int:
    """Run traces without each redundant wait and print the differences; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=10_000, help="traces for each wait (default 10000)")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the traces (default 1)")
    arguments = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for accepted_counts, waits in REDUNDANT.items():
            for wait in sorted(waits):
                counts: Counter[str] = Counter()
                one = partial(run_without, accepted_counts=accepted_counts, wait=wait)
                for more, wrong in pool.imap_unordered(one, range(0, arguments.traces, SEEDS_OF_A_TASK)):
                    counts += more
                    if wrong:
                        print(wrong)
                        return 1
                print(
                    f"{wait[1]} on {wait[0]}, accepted counts on the {accepted_counts}: {counts['traces']} traces, "
                    f"{counts['waiting']} of them with the wait, {counts['steps']} steps, "
                    f"{counts['accesses']} accesses: no race, the same captures"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
