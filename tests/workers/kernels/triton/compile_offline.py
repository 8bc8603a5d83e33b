"""Compile every kernel for a GPU that need not be there, from the launches of engines that run smoke scenarios.

Run as a program, with Triton's compiler: its interpreter sees no types. The engines run on NumPy; beside each op its
twin is called on the same buffers and integers, and a launch in there compiles the kernel for sm_90 and does no more.
The kernels of verification by chance are launched on random batches.
Ends with an error that names what does not compile, and what no engine launched.
Does not verify: other types or constants than those of a kernel's first launch; what a kernel computes.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from scenarios import codec
from tests.workers.kernels.triton.test_signature import BY_CHANCE
from tests.workers.kernels.verification import random_drafts, verify
from workers import devices
from workers.check import Options, Run
from workers.engine.parts import Parts
from workers.kernels.verify_drafts import BLOCK, STANDARD, STRICT, SYNTHETIC
from workers.tape import Tapes

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "workers" / "kernels" / "triton"
SMOKE = ROOT / "scenarios" / "smoke"

run = JITFunction.run


class Absent:
    """What Triton asks a driver for before it compiles, about a GPU that is not there."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def kernels() -> dict[str, Any]:
    """Return everything that the twins may launch, by module and name."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        module = import_module(f"workers.kernels.triton.{path.stem}")
        for name, each in vars(module).items():
            if isinstance(each, JITFunction) and name.endswith("_kernel"):
                found[f"{path.stem}.{name}"] = each
    return found


def beside(op: Callable[..., None]) -> Any:
    """Return an op on tensors: the launches of its twin, then what its definition does."""
    twin = devices.twin_of(op)

    @wraps(op)
    def both(*arguments: Any) -> None:
        twin(*arguments)
        op(*(each if isinstance(each, int) else each.numpy() for each in arguments))

    return both


def verify_by_chance(names: dict[int, str]) -> None:
    """Launch what no engine launches yet, every method of verification; only the shapes of the arguments matter."""
    of_verification = dict(names)
    by_chance = {module: named_op(module) for module in BY_CHANCE}

    def launch(op: Callable[..., None], outputs: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        op(
            **{
                name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each
                for name, each in arguments.items()
            }
        )
        return {name: arguments[name] for name in outputs}

    for method in (STRICT, STANDARD, SYNTHETIC, BLOCK):
        names |= {key: name for key, name in of_verification.items() if name.startswith("verify_drafts.")}
        batch = random_drafts(3, 2, 129, method, 64, 16)
        verify(
            batch, launch, tuple(by_chance[module] for module in ("sampler_stats", "residual_mass", "verify_drafts"))
        )
    rows, logits = torch.ones(3, dtype=torch.int64), torch.from_numpy(batch.logits.ravel())
    by_chance["draw_noise"](rows.to(torch.uint64), rows, torch.empty(6), torch.empty(3 * 3 * 4 * 4), 2, 3)
    by_chance["logit_floors"](logits, torch.ones(3), rows, torch.ones(3), rows, torch.empty(9), 2, 129, 129)


def named_op(module: str) -> Any:
    """Return the op of a module of kernels that is named like it."""
    return getattr(import_module(f"workers.kernels.triton.{module}"), module)


def main() -> None:
    names = {id(kernel): name for name, kernel in kernels().items()}
    failures: dict[str, str] = {}

    def compiled(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        name = names.pop(id(kernel), None)
        if name is not None:
            try:
                return run(kernel, *arguments, grid=grid, warmup=True, **options)
            except Exception as error:
                failures[name] = str(error)
        return None

    driver.set_active(Absent())
    JITFunction.run = compiled
    parts = Parts(**{name: beside(op) for name, op in devices.ops_of(devices.CLEAN).items()})
    for path in sorted(SMOKE.glob("*.yaml")):
        if names:
            Run(codec.load(path).explicit(), Tapes(), Options(races=False, device="triton-cpu"), parts).to_end()
    verify_by_chance(names)
    lines = [f"{name} does not compile: {error}" for name, error in failures.items()]
    lines += [f"no smoke scenario launches {name}" for name in names.values()]
    sys.exit("\n".join(lines) or None)


if __name__ == "__main__":
    main()
