"""A vLLM engine in a process that mutates it (leaves out lines, plants mistakes)."""

from functools import partial

from benchmarks.conformance.vllm_determinism import Kept
from benchmarks.power.order_lines.runs import Mutated
from workers.edits.fix import ALL
from workers.targets.child.process import Keeper
from workers.targets.vllm.installation import HOME, ROOT, Installation
from workers.targets.vllm.target import Vllm

CHILD = "benchmarks.power.vllm_mutants.child"


class Mutable(Mutated, Kept):
    """A vLLM engine whose process leaves out lines or plants a mistake on request."""

    def __init__(self, kind: Vllm) -> None:
        installation = Installation(ROOT / HOME, kind.runner)
        super().__init__(kind, Keeper(kind.name, partial(installation.launch, child=CHILD, fixes=ALL)))
