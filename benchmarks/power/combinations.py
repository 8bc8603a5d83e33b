"""Count random traces by event, plane (compared state) and schedule policy.

Run with `python -m benchmarks.power.combinations`. A trace counts for each kind of its events, each plane in which a
value was compared, and the policy of its schedule. Shards of the two generators of `specstorm hunt` alternate, on the
engine without faults. Every combination is possible: exit code 1 if no trace reaches one of them.
"""

import argparse
import sys
from collections import Counter
from itertools import product
from typing import NamedTuple, get_args

from benchmarks.power.random_shards import over_shards, shards_each
from scenarios.events import AnyEvent, Policy
from scenarios.generation.shards import TRACES_PER_SHARD, Shard
from workers.judge.contracts.breach import PLANE as CONTRACTS
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import RACES
from workers.record.observation import VARIABLES
from workers.record.verdict import Agreed
from workers.run.check import check


class Combination(NamedTuple):
    """A kind of event, a plane (category of compared state) and a schedule policy."""

    event: str
    plane: str
    policy: str


def reached(shards: int, first: int) -> Counter[Combination]:
    """Return the number of traces with each combination, in `shards` shards from `first`."""
    value_cache, found = ModelValueCache(), Counter[Combination]()
    for number in range(first, first + shards):
        for generated in Shard(profile="mixed", seed=0, number=number).generate():
            trace = generated.explicit()
            verdict = check(trace, value_cache)
            assert isinstance(verdict, Agreed), verdict
            events = {event.do for event in trace.events}
            found.update(
                Combination(event, plane, trace.schedule.policy) for event in events for plane in verdict.stats.planes
            )
    return found


def possible() -> list[Combination]:
    """Return every combination of event, plane and policy."""
    kinds = [kind.model_fields["do"].default for kind in get_args(get_args(AnyEvent)[0])]
    planes = sorted({variable.plane for variable in VARIABLES.values()} | {CONTRACTS, RACES, "liveness"})
    return [Combination(*each) for each in product(kinds, planes, get_args(Policy))]


def main() -> int:
    """Run traces and print the combinations that few or no traces reach; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=2000, help="traces to run (default 2000)")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the traces (default 1)")
    options = parser.parse_args()
    shards = shards_each(options.traces, options.processes)
    found: Counter[Combination] = Counter()
    for part in over_shards(reached, shards, options.processes):
        found.update(part)
    every = sorted(possible(), key=lambda each: found[each])
    missed = [each for each in every if not found[each]]
    traces, hit = shards * options.processes * TRACES_PER_SHARD, len(every) - len(missed)
    print(f"{traces} traces: {hit} of {len(every)} combinations of event, plane and policy reached")
    for each in missed or every[:5]:
        print(f"{found[each]:>6} {each.event} x {each.plane} x {each.policy}")
    unknown = found.keys() - set(every)
    assert not unknown, f"planes without a variable: {unknown}"
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
