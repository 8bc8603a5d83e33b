"""Compile every kernel for a GPU that need not be there, from the launches of engines that run smoke scenarios.

Run as a program, with Triton's compiler: its interpreter sees no types. The engines run on NumPy; beside each op its
twin is called on the same buffers and integers, and a launch in there compiles the kernel for sm_90 and does no more.
An engine has one method of verification, few draw their drafts, and no vocabulary is long: the kernel of verification
is launched for every method on random batches too, and the floors of a long line are looked for.
Ends with an error that names what does not compile, and what no engine launched.
Does not verify: other types or constants than those of a kernel's first launch; what a kernel computes.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from scenarios import codec
from tests.workers.kernels.calls import run as run_op
from tests.workers.kernels.verification import random_drafts, verify
from workers.engine.parts import Parts
from workers.kernels.logit_floors.arguments import SHORT_LINE, workspace_length_of
from workers.kernels.logit_floors.vectorised import logit_floors
from workers.kernels.residual_mass.vectorised import residual_mass
from workers.kernels.sampler_stats.vectorised import sampler_stats
from workers.kernels.verify_drafts.arguments import BLOCK, STANDARD, STRICT, SYNTHETIC
from workers.kernels.verify_drafts.vectorised import verify_drafts
from workers.oracle.tape import Tapes
from workers.run.check import Options, Run
from workers.targets import devices
from workers.targets.specstorm import Specstorm
from workers.targets.target import RunConfig

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "workers" / "kernels"
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
    for path in sorted(FOLDER.glob("*/triton.py")):
        folder = path.parent.name
        module = import_module(f"workers.kernels.{folder}.triton")
        for name, each in vars(module).items():
            if isinstance(each, JITFunction) and name.endswith("_kernel"):
                found[f"{folder}.{name}"] = each
    return found


def beside(op: Callable[[Any], None]) -> Any:
    """Return an op on tensors: the launches of its Triton twin, then what its NumPy twin does."""
    twin = devices.twin_of(op)

    @wraps(op)
    def both(a: Any) -> None:
        twin(a)
        op(a.on({name: getattr(a, name).numpy() for name, mode in a.modes().items() if mode != "int"}))

    return both


def verify_by_chance(names: dict[int, str]) -> None:
    """Launch every method of verification of drafts that were drawn; only the shapes of the arguments matter."""
    twins = tuple(devices.twin_of(op) for op in (sampler_stats, residual_mass, verify_drafts))

    def launch(op: Callable[..., None], outputs: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        made = {
            name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in arguments.items()
        }
        run_op(op, **made)
        return {name: arguments[name] for name in outputs}

    # A vocabulary of several blocks, and one that fits a tile.
    for method, (vocab_size, block_size) in product((STRICT, STANDARD, SYNTHETIC, BLOCK), ((129, 64), (9, 16))):
        names |= {id(kernel): name for name, kernel in kernels().items() if name.startswith("verify_drafts.")}
        verify(random_drafts(3, 2, vocab_size, method, block_size, 16), launch, twins)


def limit_a_long_line() -> None:
    """Look for the floor of a line that is too long to be read at once."""
    size = SHORT_LINE + 1
    whole, real = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    given = {"logits": torch.zeros(size), "temperature": real, "top_k": whole, "top_p": real, "num_drafts": whole}
    made = {"floors": torch.zeros(1), "workspace": torch.zeros(workspace_length_of(size))}
    numbers = {"num_speculative_tokens": 0, "vocab_size": size, "logits_stride": size}
    run_op(devices.twin_of(logit_floors), **given, **made, **numbers)


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
            trace, config = codec.load(path).explicit(), RunConfig(device="triton-cpu")
            Run(trace, Tapes(), Options(races=False), Specstorm(parts), config).to_end()
    verify_by_chance(names)
    limit_a_long_line()
    lines = [f"{name} does not compile: {error}" for name, error in failures.items()]
    lines += [f"no smoke scenario launches {name}" for name in names.values()]
    sys.exit("\n".join(lines) or None)


if __name__ == "__main__":
    main()
