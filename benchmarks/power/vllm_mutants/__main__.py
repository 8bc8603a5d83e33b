"""Take each order of a runner of vLLM away in turn, plant mistakes in it, and say what finds each.

`python -m benchmarks.power.vllm_mutants --traces 40 --engine vllm-v1`. Which lines order work is seen while clean
traces run: records of events, waits, synchronisations, `record_stream`, copies that block. A mutant leaves out one of
them, in engines that run ahead alone, and runs the scenarios and drawn traces that reach its line: eagerly for races
and for what its steps show, lazily for harm. It is judged as in a hunt: races that are not known, identities of its
steps, and outputs against those of the engine as it is. Exit code 1 if the engine as it is shows anything that is not
known, if a mutant survives that is not listed as redundant, or if one is caught that is.
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

# Of each runner the functions whose order another one implies where steps run ahead, and which.
REDUNDANT = {"v1": {"_sync_device": "copies of prompt logprobs lie before the copy that `get_output` waits for"}}


def _traces(num_traces: int, kind: Vllm) -> Iterator[tuple[str, Trace]]:
    """Yield the scenarios and drawn traces of an engine that runs ahead, by name."""
    for name, trace in scenarios_and_drawn(kind, range(num_traces), _running_ahead):
        if trace.spec.depth > 1:
            yield name, trace.explicit()


def _running_ahead(trace: Trace) -> Trace:
    drafter = "eagle" if trace.spec.drafter == "ngram" else trace.spec.drafter
    return trace.model_copy(update={"spec": trace.spec.model_copy(update={"depth": 2, "drafter": drafter})})


def redundant(runner: RunnerName, lines: Iterable[Line]) -> dict[Line, str]:
    """Return why other orders imply some of the lines of a runner."""
    reasons = REDUNDANT.get(runner, {})
    return {line: reasons[line.function] for line in lines if line.function in reasons}


STUDIED: Mapping[str, Studied] = {
    VLLM: Studied(lambda: Mutable(Vllm()), partial(redundant, "v2")),
    VLLM_V1: Studied(lambda: Mutable(VllmV1()), partial(redundant, "v1")),
}


def main() -> int:
    """Run, print the table row by row; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=40, metavar="N", help="drawn traces beside the scenarios")
    parser.add_argument("--engine", choices=list(KINDS), default=Vllm.name, help="which of vLLM's runners")
    options = parser.parse_args()
    kind = KINDS[options.engine]()
    table = Table(Runs(Mutable(kind)))
    wrong = table.run_clean(_traces(options.traces, kind))
    lines = table.lines()
    broken_off = sum(isinstance(clean.lazy.outputs, str) for clean in table.clean)
    print(f"as it is: {len(table.clean)} traces, {broken_off} break off under lazy")
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
