"""Compare all vLLM kernels with our device ops in vLLM's Python; print counts as JSON.

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
from workers.engine.functions import EngineFunctions
from workers.kernels.argument import Arguments
from workers.targets.child.inside.interpreter import interpret

NUMPY = "numpy"
# Modules to import after Triton is set to interpret kernels.
MODULES = ("verification", "frequencies", "bookkeeping", "logits")


def ours_by(twin: str) -> Ours:
    """Return a function that runs our ops as definition, NumPy or Triton, on copied arguments."""

    def outputs(case: Arguments) -> dict[str, Array]:
        # The NumPy parts use an op's definition if it has no NumPy twin.
        module = f"{type(case).__module__.rpartition('.')[0]}.{twin}"
        op: Callable[[Any], None] = getattr(
            EngineFunctions() if twin == NUMPY else import_module(module), op_name(type(case))
        )
        if twin != "triton":
            return run(op, case)
        memory = {name: torch.from_numpy(array) for name, array in memory_of(case).items()}
        op(case.on(memory))
        return {name: memory[name].numpy() for name, mode in case.modes().items() if mode in ("out", "inout")}

    return outputs


def comparisons() -> list[Comparison]:
    """Import vLLM and return the comparisons of all modules."""
    modules = (import_module(f"benchmarks.conformance.vllm_kernels.{name}") for name in MODULES)
    return [each for module in modules for each in module.COMPARISONS]


def main() -> None:
    """Compare all kernels with the ops of the twin (numpy, triton ...) in the first argument."""
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
