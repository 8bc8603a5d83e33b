"""Check that traces on vLLM give the same outputs, steps, tasks and races in any process.

`python -m benchmarks.conformance.vllm_determinism --traces 200` runs the scenarios and random traces, with eager, lazy
and random schedules in turn, in two pairs of processes (a judge and an engine) one after the other; the pairs have
different hash seeds. At the first trace that differs it prints the differences and returns exit code 1.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import islice

from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.events import Policy, Schedule
from scenarios.generation.catalogue import for_engine
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace, problems
from workers.oracle.model_values import ModelValueCache
from workers.record.words import site_text
from workers.run.engine_run import STEPS_MAX, Options, Run, error_text
from workers.targets.child.answers import Reported
from workers.targets.child.process import Keeper
from workers.targets.target import EngineFailed, RunConfig
from workers.targets.vllm.installation import HOME, ROOT, Installation
from workers.targets.vllm.names import VLLM, VLLM_V1
from workers.targets.vllm.target import Vllm, VllmV1

KINDS: dict[str, type[Vllm]] = {kind.name: kind for kind in (Vllm, VllmV1)}
HASH_SEEDS = ("1", "20011")
POLICIES: tuple[Policy, ...] = ("eager", "lazy", "random")
EngineRecord = dict[str, str]


class Kept(Vllm):
    """A vLLM engine that runs in one given process, which is reused for all traces."""

    kernels = ()

    def __init__(self, kind: Vllm, keeper: Keeper) -> None:
        self.name, self.runner, self.capabilities = kind.name, kind.runner, kind.capabilities
        self.kept = keeper

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def traces(kind: Vllm, count: int) -> Iterator[tuple[str, Trace]]:
    """Yield `count` pairs of name and trace: the scenarios first, then random traces."""
    for index, (name, trace) in enumerate(islice(scenarios_and_drawn(kind, itertools.count()), count)):
        schedule = Schedule(policy=POLICIES[index % len(POLICIES)], seed=index)
        yield name, trace.model_copy(update={"schedule": schedule}).explicit()


def scenarios_and_drawn(
    kind: Vllm, seeds: Iterable[int], changed: Callable[[Trace], Trace] = lambda drawn: drawn
) -> Iterator[tuple[str, Trace]]:
    """Yield name and trace of the scenarios, then of random traces, if the engine supports them.

    `changed` is applied to random traces.
    """
    capabilities = kind.capabilities
    for file in find_scenarios([ROOT / "scenarios" / name for name in (VLLM, VLLM_V1)]):
        scenario = load(file)
        # Some scenarios are for the other runner only.
        if lacking(scenario, capabilities) is None and kind.unmet(scenario) is None:
            yield file.stem, scenario
    for seed in seeds:
        trace = changed(for_engine(random_trace(seed), capabilities))
        if lacking(trace, capabilities) is None and not problems(trace):
            yield f"seed {seed}", trace


def run_digests(trace: Trace, kind: Kept, value_cache: ModelValueCache) -> EngineRecord:
    """Run a trace and return digests of its outputs, probes, steps, tasks and races.

    Steps, tasks and races are also counted.
    """
    run = Run(trace, value_cache, Options(), kind)
    steps: list[object] = []
    try:
        while not run.feed.drained() and run.feed.tick <= STEPS_MAX:
            run.feed.step()
            steps += [seen.model_dump(mode="json", exclude={"writers"}) for seen in run.target.take_engine_records()]
        ended = "drained" if run.feed.drained() else "stuck"
    except EngineFailed as error:
        ended = f"{error_text(error)} in {site_text(error.where)}"
    report = kind.kept.process().ask({"do": "report"}, Reported)
    run.target.close()
    if not run.feed.drained():
        kind.kept.stop()
    return {
        "end": ended,
        "outputs": _digest(sorted(run.target.outputs().items())),
        "probes": _digest(dict(run.target.probes)),
        "steps": f"{len(steps)}, {_digest(steps)}",
        "tasks": _digest(report.counts) + f", {report.counts['tasks']}",
        "races": f"{len(report.races)}, {_digest([race.model_dump() for race in report.races])}",
    }


def _digest(value: object) -> str:
    return blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=8).hexdigest()


def print_all(engine: Vllm, count: int) -> None:
    """Print the digests of each trace as one line of JSON."""
    hash_seed = os.environ.get("PYTHONHASHSEED", "random")
    launch = partial(Installation(ROOT / HOME, engine.runner).launch, hash_seed=hash_seed)
    keeper = Keeper(engine.name, launch)
    kind, value_cache = Kept(engine, keeper), ModelValueCache()
    try:
        for name, trace in traces(kind, count):
            print(
                json.dumps({"trace": name, "policy": trace.schedule.policy, **run_digests(trace, kind, value_cache)}),
                flush=True,
            )
    finally:
        kind.kept.stop()


def printed(engine: str, count: int, hash_seed: str) -> list[EngineRecord]:
    """Run the traces in a second pair of processes; return the digests of each trace."""
    command = [sys.executable, "-m", "benchmarks.conformance.vllm_determinism", "--print", "--traces", str(count)]
    command += ["--engine", engine]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(arguments: list[str]) -> int:
    """Run the traces twice and compare the digests; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=200, metavar="N", help="number of traces; scenarios come first")
    parser.add_argument("--print", action="store_true", help="run the traces once and print the digests")
    parser.add_argument("--engine", choices=list(KINDS), default=Vllm.name, help="vLLM's first or second model runner")
    options = parser.parse_args(arguments)
    if options.print:
        print_all(KINDS[options.engine](), options.traces)
        return 0
    first, second = (printed(options.engine, options.traces, seed) for seed in HASH_SEEDS)
    assert len(first) == len(second) == options.traces, "every trace was run in both"
    for one, other in zip(first, second, strict=True):
        different = [f"{what}: {one[what]} and {other[what]}" for what in one if one[what] != other[what]]
        if different:
            print(f"{one['trace']}, {one['policy']}: {'; '.join(different)}")
            return 1
    tasks = sum(int(each["tasks"].split(", ")[1]) for each in first)
    races = sum(int(each["races"].split(", ")[0]) for each in first)
    policies = ", ".join(f"{sum(each['policy'] == name for each in first)} {name}" for name in POLICIES)
    print(
        f"{len(first)} traces ({policies}) in two processes with hash seeds {' and '.join(HASH_SEEDS)}: the same"
        f" outputs, steps, tasks and races; {sum(each['end'] == 'drained' for each in first)} drained, {tasks} tasks,"
        f" {races} racing pairs of source lines"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
