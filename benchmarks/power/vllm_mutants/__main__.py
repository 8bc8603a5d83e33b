"""Leave out order lines (stream waits ...) of a vLLM runner, or plant mistakes in it.

`python -m benchmarks.power.vllm_mutants --traces 40 --engine vllm-v1`. The lines that order work are found while clean
traces run: event records, waits, synchronisations, `record_stream`, blocking copies. A mutant leaves out one line, in
asynchronous engines only, and runs the scenarios and random traces that reach the line: eagerly to find races and wrong
step inputs, lazily to find harm. It is judged as in a hunt: unknown races, identities of its steps, and outputs
compared with the unmodified engine's. Exit code 1 if the unmodified engine gives unexpected results, if a mutant
survives that is not listed as redundant, or if a redundant one is caught.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from benchmarks.conformance.vllm_determinism import KINDS, scenarios_and_drawn
from benchmarks.power.order_lines.runs import Line, Runs, Studied
from benchmarks.power.order_lines.table import Table
from benchmarks.power.vllm_mutants.mistakes import MISTAKES
from benchmarks.power.vllm_mutants.mutable import Mutable
from scenarios.trace import Trace
from workers.targets.vllm.names import VLLM, VLLM_V1, RunnerName
from workers.targets.vllm.target import Vllm, VllmV1

# By runner: functions with a redundant order in asynchronous runs, and the order that makes it redundant.
REDUNDANT = {"v1": {"_sync_device": "copies of prompt logprobs precede the copy that `get_output` waits for"}}


def _traces(num_traces: int, kind: Vllm) -> Iterator[tuple[str, Trace]]:
    """Yield an engine's scenarios and random traces with async scheduling, by name."""
    for name, trace in scenarios_and_drawn(kind, range(num_traces), _running_ahead):
        if trace.spec.depth > 1:
            yield name, trace.explicit()


def _running_ahead(trace: Trace) -> Trace:
    drafter = "eagle" if trace.spec.drafter == "ngram" else trace.spec.drafter
    return trace.model_copy(update={"spec": trace.spec.model_copy(update={"depth": 2, "drafter": drafter})})


def redundant(runner: RunnerName, lines: Iterable[Line]) -> dict[Line, str]:
    """Return why some order lines of a runner are redundant, by line."""
    reasons = REDUNDANT.get(runner, {})
    return {line: reasons[line.function] for line in lines if line.function in reasons}


STUDIED: Mapping[str, Studied] = {
    VLLM: Studied(lambda: Mutable(Vllm()), partial(redundant, "v2")),
    VLLM_V1: Studied(lambda: Mutable(VllmV1()), partial(redundant, "v1")),
}


def main() -> int:
    """Print what reveals each mutant, row by row; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=40, metavar="N", help="random traces after the scenarios")
    parser.add_argument("--engine", choices=list(KINDS), default=Vllm.name, help="vLLM's first or second model runner")
    options = parser.parse_args()
    kind = KINDS[options.engine]()
    table = Table(Runs(Mutable(kind)))
    wrong = table.run_clean(_traces(options.traces, kind))
    lines = table.lines()
    broken_off = sum(isinstance(clean.lazy.outputs, str) for clean in table.clean)
    print(f"unmodified: {len(table.clean)} traces, {broken_off} fail under the lazy policy")
    table.begin(wrong)
    reasons = redundant(kind.runner.name, lines)
    for line, calls in lines.items():
        mutant = f"{calls} in `{line.function}` ({line.file.removeprefix('vllm/')}:{line.line})"
        table.try_mutant(mutant, (line,), redundant=reasons.get(line, ""))
    for name, mistake in MISTAKES[kind.runner.name].items():
        table.try_mutant(f"{name.replace('_', ' ')}: {mistake.text}", mistake=name)
    return table.end(wrong)


if __name__ == "__main__":
    sys.exit(main())
