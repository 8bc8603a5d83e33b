"""Measure checked steps per second on one core, for 4 requests and for random traces.

Run with `python -m benchmarks.speed.checked_steps`: K = 3, hybrid, every plane compared. Ratios refer to the run with
race detection and prompts seen before, as in the 46 schedules of one scenario. Random traces are those of the soak,
with random features and schedules; they are short, so that setting up an engine counts too. The figures depend on the
interpreter's build, which is printed below them.
"""

import platform
import resource
import statistics
import time
from collections.abc import Callable

from scenarios.events import AcceptRate, AnyEvent, PromptDraw, Submit
from scenarios.generation.base import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.functions import EngineFunctions
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.run.process import prepare_process
from workers.run.references import References
from workers.targets.specstorm import Specstorm, specstorm_target

REPEATS = 21
NUM_REQUESTS = 40
NUM_DRAWN = 10


def workload(seed: int) -> Trace:
    """Return a trace of 40 requests, prompts of 12 to 24 tokens, that fill a batch of 4 rows."""
    events: list[AnyEvent] = [
        Submit(
            tick=4 * index,
            request=f"r{index}",
            prompt=PromptDraw(tokens=12 + index % 13),
            max_tokens=40,
            accept=AcceptRate(rate=0.7),
        )
        for index in range(NUM_REQUESTS)
    ]
    return Trace(spec=EngineSpec(block_size=16, num_blocks=32), seed=seed, events=tuple(events)).explicit()


def checked(trace: Trace, value_cache: ModelValueCache, races: bool) -> tuple[float, float]:
    """Return the engine steps, and the commits of requests, checked per second of CPU time."""
    start = time.process_time()
    verdict = check(trace, value_cache, Options(races=races))
    spent = time.process_time() - start
    assert isinstance(verdict, Agreed), verdict
    return verdict.stats.steps / spent, verdict.stats.commits / spent


def repeated(trace: Trace, value_cache: ModelValueCache) -> tuple[float, float]:
    """Return the rates of later runs of a sweep, each compared only with its first run."""
    compared = References()
    check(trace, value_cache, Options(compared=compared))
    first = compared.agreed
    start = time.process_time()
    verdict = check(trace, value_cache, Options(races=False, compared=compared))
    spent = time.process_time() - start
    assert isinstance(verdict, Agreed), verdict
    assert compared.agreed is first, "the run was judged in full"
    return verdict.stats.steps / spent, verdict.stats.commits / spent


def drawn(trace: Trace, value_cache: ModelValueCache) -> tuple[float, float]:
    """Return the rates of random traces, with new seeds for each workload."""
    first = trace.seed * NUM_DRAWN
    traces = [random_trace(seed).explicit() for seed in range(first, first + NUM_DRAWN)]
    start = time.process_time()
    verdicts = [check(each, ModelValueCache(), Options()) for each in traces]
    spent = time.process_time() - start
    stats = [verdict.stats for verdict in verdicts if isinstance(verdict, Agreed)]
    assert len(stats) == NUM_DRAWN, verdicts
    return sum(each.steps for each in stats) / spent, sum(each.commits for each in stats) / spent


def unchecked(trace: Trace, value_cache: ModelValueCache) -> tuple[float, float]:
    """Return the rates of the engine alone, with observations but without judges."""
    run = Run(trace, value_cache, Options(races=False), Specstorm(EngineFunctions()))
    start = time.process_time()
    while not run.feed.drained():
        run.feed.step()
        specstorm_target(run.target).engine.log.clear()
        specstorm_target(run.target).recorder.take()
    spent = time.process_time() - start
    return specstorm_target(run.target).engine.tick / spent, specstorm_target(
        run.target
    ).engine.observer.num_commits / spent


REFERENCE = "every plane, races on, prompts seen before"
CONFIGURATIONS: dict[str, Callable[[Trace, ModelValueCache], tuple[float, float]]] = {
    "every plane, races on, fresh prompts": lambda trace, value_cache: checked(trace, ModelValueCache(), True),
    REFERENCE: lambda trace, value_cache: checked(trace, value_cache, True),
    "every plane, races off, prompts seen before": lambda trace, value_cache: checked(trace, value_cache, False),
    "a later run of a sweep, equal to the first, races off": repeated,
    "engine alone: captures, no comparison": unchecked,
    "random traces, every feature drawn": drawn,
}


def main() -> None:
    """Print the median rates of the configurations, which alternate on each trace."""
    prepare_process()
    value_cache = ModelValueCache()
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in CONFIGURATIONS}
    for seed in range(REPEATS):
        trace = workload(seed)
        check(trace, value_cache, Options())
        for name, configuration in CONFIGURATIONS.items():
            rates[name].append(configuration(trace, value_cache))
    reference = [steps for steps, _ in rates[REFERENCE]]
    print(f"{'median of ' + str(REPEATS):50} {'steps/s':>8} {'commits/s':>10} {'ratio':>6} {'best steps/s':>13}")
    for name, measured in rates.items():
        steps = [rate for rate, _ in measured]
        commits = statistics.median(rate for _, rate in measured)
        ratio = statistics.median(one / other for one, other in zip(steps, reference, strict=True))
        print(f"{name:50} {statistics.median(steps):8.0f} {commits:10.0f} {ratio:6.2f} {max(steps):13.0f}")
    print(f"resident memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    print(f"Python {platform.python_version()}, {platform.python_compiler()}")


if __name__ == "__main__":
    main()
