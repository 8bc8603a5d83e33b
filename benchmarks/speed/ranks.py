"""Compare the time of traces of vLLM with several ranks and with one rank: `python -m benchmarks.speed.ranks`.

Each random trace runs alternately with ranks and with one rank, in one process, with all judges and reference runs. It
prints medians of the seconds of a trace, and of the ratio of the rates (one rank: 1).
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import count, islice

from scenarios.events import AnyEvent, Submit
from scenarios.generation.shards import Shard
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

CONFIG = RunConfig(engine="vllm", fixes="all")
KINDS = ("data_ranks", "tensor_ranks", "pipeline_ranks")


def traces_with(kind: str) -> Iterator[Trace]:
    """Yield random traces in which `kind` alone has two ranks."""
    capabilities = target_kind(CONFIG.engine).capabilities
    for number in count():
        for trace in Shard(profile="labelled", seed=5, number=number, focus=(kind,)).generate(capabilities):
            if getattr(trace.spec, kind) == 2 and trace.spec.num_ranks == 2 and trace.submits():
                yield trace.explicit()


def _without_rank(event: AnyEvent) -> AnyEvent:
    """Return an event that names no data-parallel rank."""
    return event.model_copy(update={"data_rank": 0}) if isinstance(event, Submit) else event


def seconds_of(trace: Trace, value_cache: ModelValueCache) -> float:
    """Return how long a trace takes; it must agree."""
    begin = time.perf_counter()
    verdict = check(trace, value_cache, config=CONFIG)
    assert isinstance(verdict, Agreed), verdict
    return time.perf_counter() - begin


def main() -> None:
    """Print a table row for each kind of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=40, help="traces for each kind of ranks (default: 40)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of ranks (default: all)")
    arguments = parser.parse_args()
    value_cache = ModelValueCache()
    print("| ranks | traces | seconds, two ranks | seconds, one rank | rate |\n|---|---|---|---|---|")
    for kind in arguments.kinds:
        several, one = [], []
        for trace in islice(traces_with(kind), arguments.traces):
            spec = trace.spec.model_copy(update={kind: 1})
            alone = trace.model_copy(update={"spec": spec, "events": tuple(map(_without_rank, trace.events))})
            # The first run of each makes its engine.
            for each in (trace, alone):
                check(each, value_cache, config=CONFIG)
            several.append(seconds_of(trace, value_cache))
            one.append(seconds_of(alone, value_cache))
        ratio = statistics.median(b / a for a, b in zip(several, one, strict=True))
        medians = statistics.median(several), statistics.median(one)
        print(f"| `{kind}` | {len(several)} | {medians[0]:.2f} | {medians[1]:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
