"""Compare vLLM's interpreted kernels with the NumPy definitions that replace them.

Every byte that either may write is compared, on hostile batches.

Run by vLLM's Python; prints one line of JSON for each kernel. Both run as tasks of the simulated device, on copies of
the same memory; where the kernel raises an exception, its definition must raise one too.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.conformance.vllm_kernels.batches import SIZES, Array, Batch
from benchmarks.conformance.vllm_kernels.delta_launches import of_delta_nets, prompts_held
from benchmarks.conformance.vllm_kernels.launches import INPUTS, Launch, Wide
from benchmarks.conformance.vllm_kernels.sampling_launches import SAMPLING
from benchmarks.conformance.vllm_kernels.state_launches import of_states
from workers.simulated_torch.device import Watching, activate
from workers.simulated_torch.kernel_definitions import Definition, Definitions, digest_of, function_of
from workers.targets.child.inside.interpreter import interpret
from workers.targets.vllm.inside.gated_delta import exponential
from workers.targets.vllm.inside.kernels.table import TABLE
from workers.targets.vllm.inside.main import overlay_sources
from workers.targets.vllm.inside.replacements import cuda_library_functions

_MORE = 3
# Longer prompts take too long in the interpreter.
_LONG = 1000


class Memory:
    """Tensors that one kernel launch on the simulated device receives, and their bytes."""

    def __init__(self, launch: Launch) -> None:
        from workers.simulated_torch.triton_tasks import remember_pointers  # noqa: PLC0415  it loads Triton

        self._buffers: list[torch.Tensor] = []
        self.arguments: dict[str, Any] = {}
        for name, value in launch.given.items():
            if isinstance(value, list):
                tensors = [self._tensor(each) for each in value]
                addresses = torch.tensor([each.data_ptr() for each in tensors], dtype=torch.uint64).to("sim")
                self.arguments[name] = remember_pointers(addresses, tensors)
            else:
                is_array = isinstance(value, np.ndarray | Wide)
                self.arguments[name] = self._tensor(value) if is_array else value

    def _tensor(self, value: Array | Wide) -> torch.Tensor:
        array = value.array if isinstance(value, Wide) else value
        if isinstance(value, Wide):
            array = np.pad(array, ((0, 0), (0, _MORE)), constant_values=array.dtype.type(7))
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to("sim")
        self._buffers.append(tensor)
        return tensor[:, :-_MORE] if isinstance(value, Wide) else tensor

    def bytes(self) -> list[bytes]:
        return [buffer.cpu().numpy().tobytes() for buffer in self._buffers]


def _with_strides(arguments: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the arguments of a kernel, with missing strides computed from the tensors."""
    found: dict[str, Any] = {}
    for name in names:
        if name in arguments:
            found[name] = arguments[name]
            continue
        of, _, which = name.partition("_stride")
        tensor = next(arguments[each] for each in (f"{of}_ptr", of, f"{of}_ids_ptr") if each in arguments)
        found[name] = tensor.stride(int(which.removeprefix("_") or 0)) if tensor is not None and tensor.dim() else 0
    return found


def _bytes_after(launch: Launch, kernel: Any, run: Any) -> list[bytes] | None:
    """Run a launch and return the bytes of its memory, or None if it raised an exception."""
    memory, device = Memory(launch), activate()
    arguments = _with_strides(memory.arguments, kernel.arg_names)
    try:
        run(kernel, grid=launch.grid, warmup=False, **arguments)
        device.end()
    except Exception:
        return None
    return memory.bytes()


def launches(seeds: int) -> Iterator[Launch]:
    """Yield the launches of all kernels, on `seeds` batches of each size."""
    for sizes in SIZES:
        for seed in range(seeds):
            for made in (*INPUTS, *SAMPLING, of_states, of_delta_nets):
                yield from made(Batch(sizes, seed))


def held(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield launch counts of each kernel and its NumPy definition: equal, different, raised."""
    from triton.runtime.interpreter import InterpretedFunction  # noqa: PLC0415

    from workers.simulated_torch.triton_tasks import launches_as_tasks  # noqa: PLC0415

    whatever_source = {name: _for_any_source(name, digest_of(function_of(_kernel(name)))) for name in TABLE}
    defined, interpreted = (
        launches_as_tasks(Definitions(table))(InterpretedFunction.run) for table in (whatever_source, {})
    )
    activate().begin(watching=Watching(races=False, guard=False))
    counts: dict[str, Counter[str]] = {name: Counter() for name in TABLE}
    example: dict[str, str] = {}
    for launch in launches(seeds):
        kernel = _kernel(launch.kernel)
        theirs = _bytes_after(launch, kernel, interpreted)
        ours = _bytes_after(launch, kernel, defined)
        how = "broke_off" if theirs is None and ours is None else "same" if theirs == ours else "other"
        counts[launch.kernel][how] += 1
        if how == "other":
            example.setdefault(launch.kernel, f"grid {launch.grid}")
    for name, count in counts.items():
        is_of_this = TABLE[name].for_source(digest_of(function_of(_kernel(name)))) is not None
        yield {"kernel": name, "counts": dict(count), "is_of_this": is_of_this, "example": example.get(name, "")}


def _for_any_source(name: str, digest: str) -> Definition:
    """Return the kernel's definition, marked as valid for the installed source."""
    found = TABLE[name].for_source(digest) or TABLE[name]
    return Definition(found.run, digest, found.covers)


def _kernel(name: str) -> Any:
    """Return the function that launches a kernel, given its qualified name."""
    module, _, function = name.rpartition(".")
    kernel = getattr(import_module(module), function)
    # Unwrap autotuners and heuristics: they would choose arguments that a launch gives here.
    while hasattr(kernel.fn, "fn"):
        kernel = kernel.fn
    return kernel


def main() -> None:
    """Compare each kernel with its NumPy definition, and print the counts as JSON lines."""
    for tree in sys.argv[2:]:
        overlay_sources(Path(tree))
    interpret()
    activate()
    utils: Any = import_module("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")
    utils.tldevice = cuda_library_functions(None)
    rows_of_one: Any = import_module("vllm.third_party.flash_linear_attention.ops.fused_recurrent")
    rows_of_one.exp = exponential(None)
    np.seterr(all="ignore")
    seeds = int(sys.argv[1])
    for told in held(seeds):
        print(json.dumps(told), flush=True)
    prompts = [Batch(sizes, seed) for sizes in SIZES for seed in range(seeds) if 0 < sizes.length < _LONG]
    print(json.dumps(prompts_held([batch for batch in prompts if batch.num_tokens])), flush=True)


if __name__ == "__main__":
    main()
