"""Compare all kernels with our ops and print the counts; run by vLLM's Python.

Prints one line of JSON for each kernel and condition.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from benchmarks.conformance.vllm_kernels.comparison import Array, Comparison, Ours, counted
from tests.workers.kernels.twins import memory_of, op_name, run
from workers.engine.parts import Parts
from workers.kernels.argument import Arguments
from workers.targets.child.inside.interpreter import interpret

NUMPY = "numpy"
# Modules to import after Triton is set to interpret kernels.
MODULES = ("verification", "frequencies", "bookkeeping", "logits")


def ours_by(twin: str) -> Ours:
    """Return a function that runs our ops by one of their twins, on copies of its arguments."""

    def outputs(case: Arguments) -> dict[str, Array]:
        # The NumPy parts use an op's definition if it has no NumPy twin.
        module = f"{type(case).__module__.rpartition('.')[0]}.{twin}"
        op: Callable[[Any], None] = getattr(Parts() if twin == NUMPY else import_module(module), op_name(type(case)))
        if twin != "triton":
            return run(op, case)
        memory = {name: torch.from_numpy(array) for name, array in memory_of(case).items()}
        op(case.on(memory))
        return {name: memory[name].numpy() for name, mode in case.modes().items() if mode in ("out", "inout")}

    return outputs


def comparisons() -> list[Comparison]:
    """Return all comparisons; this loads vLLM."""
    modules = (import_module(f"benchmarks.conformance.vllm_kernels.{name}") for name in MODULES)
    return [each for module in modules for each in module.COMPARISONS]


def main() -> None:
    """Run all comparisons with the twin that the first argument names."""
    interpret()
    # Overflow and NaN are part of the cases.
    np.seterr(all="ignore")
    ours = ours_by(sys.argv[1])
    for each in comparisons():
        for condition, count in counted(each.compare(ours)).items():
            counts = [count.num_same, count.num_other, count.num_not_given]
            told = {"kernel": each.kernel, "module": each.module, "op": each.op, "condition": condition}
            print(json.dumps({**told, "counts": counts, "example": count.example}), flush=True)


if __name__ == "__main__":
    main()
