"""Compile every kernel without a GPU, from the launches of engines that run smoke scenarios.

Run as a program with Triton's compiler, because the interpreter ignores types. The engines run on NumPy; the launches
of each op's twin are recorded, and each kernel is compiled for sm_90 in the variant of its first launch.
An engine has one verification method, few engines sample draft tokens, and no vocabulary is large: the verification
kernel is also recorded for every method on random batches, and the floors of a long row are searched. A launch must
find the kernels that were compiled ahead of time.
Exits with an error that names kernels that do not compile, that no engine launched, or that a launch compiled again.
Does not verify: types or constants that differ from a kernel's first launch; results of a kernel.
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
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from scenarios import codec
from tests.workers.kernels.calls import run as run_op
from tests.workers.kernels.verification import random_drafts, verify
from workers.engine.functions import EngineFunctions
from workers.kernels.compilation.triton import Variant, Variants, compile_variant
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.kv_write.triton import kv_write
from workers.kernels.launch.triton import launched_by
from workers.kernels.logit_floors.definition import SHORT_LINE, workspace_length_of
from workers.kernels.logit_floors.numpy import logit_floors
from workers.kernels.residual_mass.numpy import residual_mass
from workers.kernels.sampler_stats.numpy import sampler_stats
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, STRICT, SYNTHETIC
from workers.kernels.verify_drafts.numpy import verify_drafts
from workers.oracle.model_values import ModelValueCache
from workers.run.rehearsal import listing, rehearse
from workers.targets import devices
from workers.targets.specstorm import Specstorm

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "workers" / "kernels"
SMOKE = ROOT / "scenarios" / "smoke"
VERIFICATION = "workers.kernels.verify_drafts.triton"


class Absent:
    """Triton driver for an absent GPU, with the properties that compilation needs."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def launcher_cls(self, source: Any, metadata: Any) -> None: ...


def kernels() -> set[tuple[str, str]]:
    """Return all kernels that the twins may launch, by module and name."""
    found = set()
    for path in FOLDER.glob("*/triton.py"):
        module = f"workers.kernels.{path.parent.name}.triton"
        for name, each in vars(import_module(module)).items():
            if isinstance(each, JITFunction) and name.endswith("_kernel"):
                found.add((module, name))
    return found


def listed(op: Callable[[Any], None], variants: Variants) -> Any:
    """Return an op that records its twin's launches without running them."""
    twin = devices.twin_of(op)

    @wraps(op)
    def listing_alone(a: Any) -> None:
        variants.add(twin, a)

    return listing_alone


def verify_by_chance(variants: Variants) -> None:
    """Record the kernels of every verification method for sampled draft tokens."""
    ops = tuple(listed(op, variants) for op in (sampler_stats, residual_mass, verify_drafts))

    def launch(op: Callable[..., None], outputs: tuple[str, ...], **arguments: Any) -> dict[str, Any]:
        made = {
            name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in arguments.items()
        }
        run_op(op, **made)
        return {name: arguments[name] for name in outputs}

    # A vocabulary of several blocks, and one that fits a tile.
    for method, (vocab_size, block_size) in product((STRICT, STANDARD, SYNTHETIC, BLOCK), ((129, 64), (9, 16))):
        verify(random_drafts(3, 2, vocab_size, method, block_size, 16), launch, ops)


def limit_a_long_line(variants: Variants) -> None:
    """Search the floor of a row of logits that is too long to be read at once."""
    size = SHORT_LINE + 1
    whole, real = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    given = {"logits": torch.zeros(size), "temperature": real, "top_k": whole, "top_p": real, "num_drafts": whole}
    made = {"floors": torch.zeros(1), "workspace": torch.zeros(workspace_length_of(size))}
    numbers = {"num_speculative_tokens": 0, "vocab_size": size, "logits_stride": size}
    run_op(listed(logit_floors, variants), **given, **made, **numbers)


def smoke(variants: Variants, wanted: set[tuple[str, str]]) -> None:
    """Run smoke scenarios until all wanted kernels have been launched."""
    functions = EngineFunctions(**{name: listing(op, variants) for name, op in devices.ops_of(devices.CLEAN).items()})
    for path in sorted(SMOKE.glob("*.yaml")):
        if wanted - {(variant.module, variant.name) for variant in variants.found}:
            rehearse(codec.load(path).explicit(), Specstorm(functions), ModelValueCache())


def chosen(found: set[Variant]) -> list[Variant]:
    """Return one variant of each kernel, and all variants of verification."""
    one = {(variant.module, variant.name): variant for variant in sorted(found)}
    return sorted({*one.values(), *(variant for variant in found if variant.module == VERIFICATION)})


def compiled_by_a_launch() -> list[str]:
    """Return the kernels that a launch compiles despite compilation ahead of time."""
    words, again = torch.zeros(2, dtype=torch.int64), []
    arguments = KvWrite(words, words, words, words.view(torch.uint64), words.view(torch.uint64), 0)
    variants = Variants()
    variants.add(kv_write, arguments)
    for variant in variants.found:
        compile_variant(variant)

    def launch(kernel: Any, grid: tuple[int, ...], given: tuple[Any, ...], options: dict[str, Any]) -> None:
        # Same state as a process that has compiled nothing.
        kernel.device_caches.clear()
        kernel.warmup(*given, grid=grid, **options)

    def listen(*, src: Any, cache_hit: bool, **_: Any) -> None:
        again.extend([] if cache_hit else [src.name])

    with launched_by(launch), knobs.compilation.scope():
        knobs.compilation.listener = listen
        kv_write(arguments)
    return again


def main() -> None:
    driver.set_active(Absent())
    variants, wanted = Variants(), kernels()
    verify_by_chance(variants)
    limit_a_long_line(variants)
    smoke(variants, wanted)
    lines = []
    for variant in chosen(variants.found):
        wanted.discard((variant.module, variant.name))
        try:
            compile_variant(variant)
        except Exception as error:
            lines.append(f"{variant.name} of {variant.module} does not compile: {error}")
    lines += [f"no smoke scenario launches {name} of {module}" for module, name in sorted(wanted)]
    lines += [f"{name} was compiled ahead, and by its launch again" for name in compiled_by_a_launch()]
    sys.exit("\n".join(lines) or None)


if __name__ == "__main__":
    main()
