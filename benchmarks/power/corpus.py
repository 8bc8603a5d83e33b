"""Compare variants of known traces with fresh ones, by the faults and probes they find.

`python -m benchmarks.power.corpus` prints, for the faults that random traces find least often, how many of N traces
find each fault and their CPU time: fresh traces, variants of the other faults' regressions, variants of the fault's own
regression, and variants of the first traces that hit rare probes. It then prints how often fresh traces and variants
hit each rare probe.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scenarios import codec
from scenarios.draw import below
from scenarios.events import Schedule
from scenarios.generation.base import random_trace
from scenarios.generation.shards import with_faults
from scenarios.trace import Trace, problems
from scenarios.variants import variant
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.trials import run_with_fault

REGRESSIONS = Path(__file__).resolve().parents[2] / "scenarios" / "regressions"
RARELY_FOUND = (
    "vllm-39273-draftless-step",
    "vllm-id-reuse",
    "vllm-37238-every-column",
    "sglang-33758-length-before-stop",
    "vllm-42722-empty-row",
    "tpu-2469-padded-slot",
    "beellama-165-second-roll-back",
    "ascend-9749-past-the-context",
)
SELDOM_SHARE = 0.02


def regressions() -> dict[str, Trace]:
    """Return each fault's regression trace with the fault off, if it is valid without it."""
    loaded = {path.stem: codec.load(path).model_copy(update={"faults": ()}) for path in REGRESSIONS.glob("*.yaml")}
    return {fault: trace for fault, trace in sorted(loaded.items()) if not problems(trace)}


def drawn(count: int, seed: int, parents: list[Trace]) -> Iterator[Trace]:
    """Yield fresh traces, or variants of `parents` if there are any."""
    for index in range(count):
        number = seed << 32 | index
        fresh = random_trace(number)
        parent = parents[below(len(parents), number, "benchmark", "parent", 0)] if parents else None
        yield fresh if parent is None else variant(parent, fresh, number)


def probes_of(traces: Iterator[Trace], value_cache: ModelValueCache) -> tuple[Counter[str], dict[str, Trace]]:
    """Return how many traces hit each probe without faults, and the first such trace."""
    hits: Counter[str] = Counter()
    firsts: dict[str, Trace] = {}
    for trace in traces:
        explicit = trace.explicit().model_copy(update={"schedule": Schedule()})
        verdict = check(explicit, value_cache, Options(races=False))
        assert isinstance(verdict, Agreed), verdict
        hits.update(verdict.stats.probes.keys())
        firsts = {**dict.fromkeys(verdict.stats.probes, explicit), **firsts}
    return hits, firsts


def detections(fault: str, traces: Iterator[Trace], value_cache: ModelValueCache) -> tuple[int, float]:
    """Return how many traces reveal a fault, and the CPU seconds."""
    start, found = time.process_time(), 0
    for trace in traces:
        found += bool(
            run_with_fault(fault, with_faults(trace, FAULTS[fault].requires, (fault,)).explicit(), value_cache).plane
        )
    return found, time.process_time() - start


def main() -> None:
    """Print how often corpus variants and fresh traces hit probes, and find faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=200, help="traces for each fault and corpus (default 200)")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    options = parser.parse_args()
    count, value_cache, known = options.traces, ModelValueCache(), regressions()
    before, firsts = probes_of(drawn(3 * count, 1, []), value_cache)
    seldom = [probe for probe, hits in before.items() if hits <= SELDOM_SHARE * 3 * count]
    seldom_traces = [firsts[probe] for probe in seldom]
    columns = ("fresh", "other faults", "own", "rare probes")
    print(f"{f'traces of {count} that find it':<40} " + " ".join(f"{column:>12}" for column in columns))
    for fault in options.fault or RARELY_FOUND:
        others = [trace for other, trace in known.items() if other != fault]
        own = [known[fault]] if fault in known else []
        cells = []
        for parents in ([], others, own, seldom_traces):
            found, seconds = detections(fault, drawn(count, 2, parents), value_cache)
            cells.append(f"{found:>5} {seconds:>4.1f} s")
        print(f"{fault:<40} " + " ".join(f"{cell:>12}" for cell in cells), flush=True)
    after, _ = probes_of(drawn(3 * count, 3, seldom_traces), value_cache)
    print(f"\n{f'traces of {3 * count} that hit it':<40} {'fresh':>12} {'rare probes':>12}")
    for probe in seldom:
        print(f"{probe:<40} {before[probe]:>12} {after[probe]:>12}")


if __name__ == "__main__":
    main()
