"""How many engine steps a second one core checks: 4 requests, K = 3, hybrid, every plane compared.

Run with `python -m benchmarks.checked_steps`. The reference of the ratios is the run with races on, the default.
"""

import resource
import statistics
import time
from collections.abc import Callable

from scenarios.events import AcceptRate, AnyEvent, PromptDraw, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.check import Options, Run, check
from workers.engine.parts import Parts
from workers.tape import Tapes
from workers.verdict import Agreed

REPEATS = 7
NUM_REQUESTS = 40


def workload(seed: int) -> Trace:
    """Return 40 requests that arrive as fast as a batch of 4 rows serves them: prompts of 12 to 24 tokens, 40 each."""
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
    return Trace(spec=EngineSpec(), seed=seed, events=tuple(events)).explicit()


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time a call takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(trace: Trace, tapes: Tapes, options: Options) -> tuple[float, float]:
    """Return checked steps and request commits per second of processor time."""
    verdicts = []
    spent = seconds(lambda: verdicts.append(check(trace, tapes, options)))
    (verdict,) = verdicts
    assert isinstance(verdict, Agreed), verdict
    return verdict.stats.steps / spent, verdict.stats.commits / spent


def unchecked(trace: Trace, tapes: Tapes) -> float:
    """Return steps per second of the engine alone: no comparison, no race detector."""
    run = Run(trace, tapes, Options(races=False), Parts())
    start = time.process_time()
    while not run.engine.drained():
        run.engine.step()
        run.engine.log.clear()
        run.recorder.take()
    return run.engine.tick / (time.process_time() - start)


def main() -> None:
    """Print medians over repeats, fresh prompts and prompts seen before."""
    traces = [workload(seed) for seed in range(REPEATS)]
    check(traces[0], Tapes(), Options())
    fresh = [measure(trace, Tapes(), Options()) for trace in traces]
    tapes = Tapes()
    for trace in traces:
        check(trace, tapes, Options())
    seen = [measure(trace, tapes, Options()) for trace in traces]
    no_races = [measure(trace, tapes, Options(races=False)) for trace in traces]
    bare = [unchecked(trace, tapes) for trace in traces]
    reference = statistics.median(steps for steps, _ in seen)
    print(f"{'configuration':44} {'steps/s':>8} {'commits/s':>10} {'ratio':>6}")
    for name, rates in (
        ("every plane, races on, fresh prompts", fresh),
        ("every plane, races on, prompts seen before", seen),
        ("every plane, races off, prompts seen before", no_races),
    ):
        steps, commits = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"{name:44} {steps:8.0f} {commits:10.0f} {steps / reference:6.2f}")
    print(
        f"{'engine alone: captures, no comparison':44} {statistics.median(bare):8.0f} {'':10} "
        f"{statistics.median(bare) / reference:6.2f}"
    )
    print(f"resident memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
