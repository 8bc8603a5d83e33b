"""Run generated traces on the engine without faults, and print how often probes were hit.

Run with `python -m benchmarks.conformance.soak --steps 200000`. Exit code 1 with the first finding, 3 if a probe is too
rare. Shards of the two generators of `specstorm hunt` alternate. With `--processes` each process has its own traces,
and steps, findings and probes are added up. With `--device` every trace must also capture the same bytes as on `sim`.
Exit code 3 also if more than one in a thousand sampled tokens was decided too narrowly to be certain of it.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from scenarios.codec import dumps
from scenarios.events import LANES, Schedule
from scenarios.generation.shards import GENERATORS, TRACES_PER_SHARD, Generator, Shard
from scenarios.probes import PROBES
from scenarios.trace import Trace
from workers.lanes.policies import lane_orders
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import DECISIONS_PER_AMBIGUOUS, Agreed, Verdict
from workers.run.check import check
from workers.targets.registry import known_engines
from workers.targets.target import DEFAULT_CONFIG, DEVICES, SPECSTORM, RunConfig

# Situations that every soak must reach in at least 2 % of its traces, and the probe that counts each.
REQUIRED = {
    "preemption": "preemption",
    "partial accept": "partial_accept",
    "discard": "discard",
    "condense with a copy pending": "condense_in_flight",
    "gap": "gap",
    "K change": "k_change",
    "abort in flight": "abort_in_flight",
    "padding": "padding",
}
LEAST_SHARE = 0.02
LEAST_SHARE_OF_THREE = 0.30
# Distance between the first trace numbers of two processes.
TRACES_OF_A_PROCESS = 12 << 24


@dataclass(slots=True)
class Soak:
    """Counts of a soak (a long run without faults): traces, steps and hit probes."""

    traces: int = 0
    steps: int = 0
    commits: int = 0
    captures: int = 0
    with_three: int = 0
    drawn: int = 0
    ambiguous: int = 0
    policies: Counter[str] = field(default_factory=Counter)
    generators: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)

    def share(self, probe: str) -> float:
        """Return the share of traces that hit a probe."""
        return self.reached[probe] / max(1, self.traces)

    def add(self, other: "Soak") -> None:
        """Add the counts of another process to these counts."""
        self.traces += other.traces
        self.steps += other.steps
        self.commits += other.commits
        self.captures += other.captures
        self.with_three += other.with_three
        self.drawn += other.drawn
        self.ambiguous += other.ambiguous
        self.policies += other.policies
        self.generators += other.generators
        self.reached += other.reached

    def seldom_reached(self) -> list[str]:
        """Return the situations that too few traces reached for the soak to mean anything."""
        seldom = [name for name, probe in REQUIRED.items() if self.share(probe) < LEAST_SHARE]
        if self.with_three < LEAST_SHARE_OF_THREE * self.traces:
            seldom.append("three or more requests")
        # A single ambiguous decision is no evidence, however short the soak is.
        if self.ambiguous > 1 and self.ambiguous * DECISIONS_PER_AMBIGUOUS > self.drawn:
            seldom.append("decisions that are not ambiguous")
        return seldom


def schedule_of(seed: int) -> Schedule:
    """Return the schedule of a trace number: eager, lazy, random and lane order alternate."""
    orders = lane_orders(LANES)
    return (
        Schedule(policy="eager"),
        Schedule(policy="lazy"),
        Schedule(policy="random", seed=seed),
        Schedule(policy="lane_order", order=orders[seed // 4 % len(orders)]),
    )[seed % 4]


def generated(first: int) -> Iterator[tuple[int, Generator, Trace]]:
    """Yield number, generator and trace without end, starting at number `first`."""
    for number in count(first // TRACES_PER_SHARD):
        profile = GENERATORS[number % len(GENERATORS)]
        drawn = Shard(profile=profile, seed=0, number=number).generate()
        for seed, trace in enumerate(drawn, number * TRACES_PER_SHARD):
            if seed >= first:
                yield seed, profile, trace


def finding(trace: Trace, verdict: Verdict, value_cache: ModelValueCache, config: RunConfig) -> str | None:
    """Return a description of what is wrong with a run, or None."""
    if not isinstance(verdict, Agreed):
        return verdict.model_dump_json()
    if config.device == "sim" or verdict.stats.probes.get("ambiguous_decision"):
        return None
    defined = check(trace, value_cache)
    assert isinstance(defined, Agreed)
    seen, wanted = verdict.stats.digest, defined.stats.digest
    return None if seen == wanted else f"captures {seen} on {config.device}, {wanted} on sim"


def soak(
    first_seed: int, steps: int, progress: bool = False, config: RunConfig = DEFAULT_CONFIG
) -> tuple[Soak, Trace | None, str]:
    """Check generated traces until `steps` engine steps are done or one trace fails."""
    seen, value_cache = Soak(), ModelValueCache()
    started = reported = time.monotonic()
    for seed, profile, drawn in generated(first_seed):
        if seen.steps >= steps:
            break
        schedule = schedule_of(seed)
        trace = drawn.explicit().model_copy(update={"schedule": schedule})
        verdict = check(trace, value_cache, config=config)
        wrong = finding(trace, verdict, value_cache, config)
        if wrong is not None:
            return seen, trace, f"seed {seed}: {wrong}"
        assert isinstance(verdict, Agreed)
        seen.traces += 1
        seen.steps += verdict.stats.steps
        seen.commits += verdict.stats.commits
        seen.captures += verdict.stats.captures
        seen.with_three += verdict.stats.requests >= 3
        seen.drawn += verdict.stats.probes.get("random_decision", 0)
        seen.ambiguous += verdict.stats.probes.get("ambiguous_decision", 0)
        seen.policies[schedule.policy] += verdict.stats.steps
        seen.generators[profile] += verdict.stats.steps
        seen.reached.update(verdict.stats.probes.keys())
        if progress and time.monotonic() - reported > 10:
            reported = time.monotonic()
            rate = seen.steps / (reported - started)
            left = (steps - seen.steps) / rate
            print(f"{seen.steps} steps, {rate:.0f}/s, 0 findings, {left:.0f} s left", file=sys.stderr)
    return seen, None, ""


def soak_in_processes(first_seed: int, steps: int, config: RunConfig, processes: int) -> tuple[Soak, Trace | None, str]:
    """Soak in several processes; stop all of them at the first finding."""
    total = Soak()
    each = partial(soak, steps=-(-steps // processes), config=config)
    first_seeds = [first_seed + index * TRACES_OF_A_PROCESS for index in range(processes)]
    # A process that was forked cannot use a GPU.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for seen, failing, why in pool.imap_unordered(each, first_seeds):
            total.add(seen)
            if failing is not None:
                return total, failing, why
    return total, None, ""


def main() -> int:
    """Soak and print the shares of traces that hit each probe; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000, help="engine steps to check (default 200000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trace (default 0)")
    parser.add_argument("--engine", choices=known_engines(), default=SPECSTORM, help="the engine to test")
    parser.add_argument("--device", choices=DEVICES, default="sim", help="device that the engine runs on (default sim)")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the steps (default 1)")
    options = parser.parse_args()
    config = RunConfig(engine=options.engine, device=options.device)
    started = time.monotonic()
    if options.processes == 1:
        seen, failing, why = soak(options.seed, options.steps, progress=True, config=config)
    else:
        seen, failing, why = soak_in_processes(options.seed, options.steps, config, options.processes)
    if failing is not None:
        print(dumps(failing))
        print(f"FINDING after {seen.steps} clean steps: {why}")
        return 1
    spent = time.monotonic() - started
    done = f"{seen.steps} steps, {seen.commits} commits, {seen.captures} observations, {seen.traces} traces"
    print(f"{done}: 0 findings")
    print(f"{seen.steps / spent:.0f} steps/s in {options.processes} processes, {spent:.0f} s")
    for name, by in (("policy", seen.policies), ("generator", seen.generators)):
        print(f"steps by {name}: " + ", ".join(f"{each} {by[each]}" for each in sorted(by)))
    for name, probe in REQUIRED.items():
        print(f"  {name:30} {seen.share(probe):6.1%} of traces")
    print(f"  {'three or more requests':30} {seen.with_three / seen.traces:6.1%} of traces")
    print(f"  {seen.drawn} tokens were sampled, {seen.ambiguous} of them ambiguously")
    print("  also: " + ", ".join(f"{probe} {seen.share(probe):.1%}" for probe in sorted(seen.reached)))
    print("  never: " + (", ".join(probe for probe in PROBES if not seen.reached[probe]) or "no probe"))
    seldom = seen.seldom_reached()
    if seldom:
        print("too rare: " + ", ".join(seldom))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
