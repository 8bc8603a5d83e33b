"""Leave out each line that orders work in SGLang, and print what finds the removal.

`python -m benchmarks.power.sglang_mutants --traces 20`. As in `benchmarks.power.vllm_mutants`, the lines that order
work are found while clean traces run, and a mutant leaves out one of them if the overlap schedule is on. It runs the
scenarios and random traces that reach its line, eagerly to find races and wrong step inputs, lazily to find harm.

Exit code 1 if the unmodified engine gives unexpected results, if a mutant survives that is not listed as redundant, or
if a redundant one is caught.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from benchmarks.power.order_lines.runs import Line, Mutated, Runs, Studied
from benchmarks.power.order_lines.table import Table
from scenarios.capabilities import lacking
from scenarios.codec import find_scenarios, load
from scenarios.generation.catalogue import for_engine
from scenarios.generation.fitting import fitted_to
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace, problems
from workers.edits.fix import ALL
from workers.targets.child.process import Keeper, Launch
from workers.targets.sglang.installation import HOME, ROOT, SGLANG, launch
from workers.targets.sglang.target import Sglang
from workers.targets.target import RunConfig

CHILD = "benchmarks.power.sglang_mutants.child"
_KEPT = "a batch and its tensors are kept for two iterations (`record_batch_in_overlap`)"
_UNPLANNED = "without CUDA graphs nothing is launched on the stream that plans target verification"
# By function, called method, and number of earlier such calls in it: why another order makes the line redundant.
REDUNDANT: dict[tuple[str, str, int], str] = {
    (
        "resolve_forward_inputs",
        "record_stream",
        0,
    ): "the barrier (`_apply_war_barrier`) comes before that memory's next use",
    ("_resolve_spec_extras", "record_stream", 0): f"{_KEPT}, as a comment there says",
    ("resolve_mixed_spec_tails", "wait", 0): "the forward stream waits for values that it has published itself",
    ("resolve_mixed_spec_tails", "wait", 1): (
        "the host waited for the schedule stream, which is ordered after the barrier, when it mixed the batch: "
        "`mix_with_running` makes tensors of lists"
    ),
    ("resolve_seq_lens_cpu", "wait", 0): "the barrier (`_apply_war_barrier`) comes before that read",
    ("launch_batch_sample_if_needed", "record+wait", 0): (
        "sampling inputs exist before the batch is launched, except for the mask, which the forward stream copies"
    ),
    ("run_eagle_verify", "record+wait", 0): _UNPLANNED,
    ("run_eagle_verify", "record+wait", 1): _UNPLANNED,
    ("record_stream_each", "record_stream", 0): _KEPT,
}


class Mutable(Mutated, Sglang):
    """SGLang in a process that leaves out source lines on request."""

    kernels = ()

    def __init__(self) -> None:
        plain = launch(ROOT / HOME, fixes=ALL)
        python, _, _, *rest = plain.command
        self.kept = Keeper(self.name, lambda: Launch((python, "-m", CHILD, *rest), plain.environment, plain.folder))

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def traces(count: int) -> Iterator[tuple[str, Trace]]:
    """Yield the overlap scenarios, then random traces of `count` seeds, by name."""
    capabilities = Sglang.capabilities
    for file in find_scenarios([ROOT / "scenarios" / Sglang.name]):
        yield file.stem, load(file).explicit()
    for seed in range(count):
        drawn = fitted_to(for_engine(random_trace(seed), capabilities), capabilities)
        ahead = drawn.model_copy(update={"spec": drawn.spec.model_copy(update={"depth": 2})})
        if lacking(ahead, capabilities) is None and not problems(ahead):
            yield f"seed {seed}", ahead.explicit()


def redundant(lines: Mapping[Line, str]) -> dict[Line, str]:
    """Return why some order lines are redundant, by line.

    `lines` maps all order lines, in source order, to their calls.
    """
    num_before: Counter[tuple[str, str]] = Counter()
    reasons: dict[Line, str] = {}
    for line, calls in lines.items():
        place = line.function, calls
        reason = REDUNDANT.get((*place, num_before[place]))
        reasons |= {line: reason} if reason is not None else {}
        num_before[place] += 1
    return reasons


STUDIED: Mapping[str, Studied] = {SGLANG: Studied(Mutable, redundant)}


def main() -> int:
    """Print what reveals the removal of each order line, row by row; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=20, metavar="N", help="random traces after the scenarios")
    options = parser.parse_args()
    table = Table(Runs(Mutable()))
    wrong = table.run_clean(traces(options.traces))
    print(f"unmodified: {len(table.clean)} traces")
    table.begin(wrong)
    lines = table.lines()
    reasons = redundant(lines)
    for line, calls in lines.items():
        mutant = f"{calls} in `{line.function}` ({line.file.removeprefix('sglang/')}:{line.line})"
        table.try_mutant(mutant, (line,), redundant=reasons.get(line, ""))
    return table.end(wrong)


if __name__ == "__main__":
    sys.exit(main())
