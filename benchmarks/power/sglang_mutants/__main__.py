"""Take each order of SGLang away in turn, and say what finds each.

`python -m benchmarks.power.sglang_mutants --traces 20`. As `benchmarks.power.vllm_mutants` does: which lines order work
is seen while clean traces run, and a mutant leaves out one of them where the overlap schedule is on. It runs the
scenarios and drawn traces that reach its line, eagerly for races and for what its steps show, lazily for harm.

Exit code 1 if the engine as it is shows anything that is not known, if a mutant survives that is not listed as
redundant, or if one is caught that is.
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
from scenarios.generation.fitting import within
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace, problems
from workers.edits.fix import ALL
from workers.targets.child.process import Keeper, Launch
from workers.targets.sglang.installation import HOME, ROOT, SGLANG, launch
from workers.targets.sglang.target import Sglang
from workers.targets.target import RunConfig

CHILD = "benchmarks.power.sglang_mutants.child"
_KEPT = "a batch and what was in it are kept for two iterations (`record_batch_in_overlap`)"
_UNPLANNED = "without captured graphs nothing is launched on the stream that plans what the target verifies"
# By function, by what it calls, and by how many such calls are before it there, why another order implies it.
REDUNDANT: dict[tuple[str, str, int], str] = {
    (
        "resolve_forward_inputs",
        "record_stream",
        0,
    ): "the barrier (`_apply_war_barrier`) comes before that memory's next use",
    ("_resolve_spec_extras", "record_stream", 0): f"{_KEPT}, as a comment there says",
    ("resolve_mixed_spec_tails", "wait", 0): "the forward stream waits for what it has published itself",
    ("resolve_mixed_spec_tails", "wait", 1): (
        "the host has waited for the schedule stream, which was behind the barrier, where it mixed the batch: "
        "`mix_with_running` makes tensors of lists"
    ),
    ("resolve_seq_lens_cpu", "wait", 0): "the barrier (`_apply_war_barrier`) comes before that read",
    ("launch_batch_sample_if_needed", "record+wait", 0): (
        "what is sampled from was made before the batch was launched, but for the mask, which the forward stream copies"
    ),
    ("run_eagle_verify", "record+wait", 0): _UNPLANNED,
    ("run_eagle_verify", "record+wait", 1): _UNPLANNED,
    ("record_stream_each", "record_stream", 0): _KEPT,
}


class Mutable(Mutated, Sglang):
    """SGLang in a process that mutates it when it is told to."""

    kernels = ()

    def __init__(self) -> None:
        plain = launch(ROOT / HOME, fixes=ALL)
        python, _, _, *rest = plain.command
        self.kept = Keeper(self.name, lambda: Launch((python, "-m", CHILD, *rest), plain.environment, plain.folder))

    def keeper(self, config: RunConfig) -> Keeper:
        return self.kept


def traces(count: int) -> Iterator[tuple[str, Trace]]:
    """Yield the scenarios that run with the overlap schedule, then so many drawn traces, by name."""
    capabilities = Sglang.capabilities
    for file in find_scenarios([ROOT / "scenarios" / Sglang.name]):
        yield file.stem, load(file).explicit()
    for seed in range(count):
        drawn = within(for_engine(random_trace(seed), capabilities), capabilities)
        ahead = drawn.model_copy(update={"spec": drawn.spec.model_copy(update={"depth": 2})})
        if lacking(ahead, capabilities) is None and not problems(ahead):
            yield f"seed {seed}", ahead.explicit()


def redundant(lines: Mapping[Line, str]) -> dict[Line, str]:
    """Return why other orders imply some of the lines, which come in their order with what they call."""
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
    """Run, print the table row by row; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=20, metavar="N", help="drawn traces beside the scenarios")
    options = parser.parse_args()
    table = Table(Runs(Mutable()))
    wrong = table.run_clean(traces(options.traces))
    print(f"as it is: {len(table.clean)} traces")
    table.begin(wrong)
    lines = table.lines()
    reasons = redundant(lines)
    for line, calls in lines.items():
        mutant = f"{calls} in `{line.function}` ({line.file.removeprefix('sglang/')}:{line.line})"
        table.try_mutant(mutant, (line,), redundant=reasons.get(line, ""))
    return table.end(wrong)


if __name__ == "__main__":
    sys.exit(main())
