"""Compile the Triton kernels that traces need on a GPU, before the first trace runs.

Generated traces run on NumPy; for each device op, its Triton twin lists the kernel variants that it would launch.
Does not verify: anything; these runs are not judged.
"""

import fcntl
import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scenarios.generation.shards import Shard
from scenarios.trace import Trace
from workers.engine.functions import EngineFunctions
from workers.oracle.model_values import ModelValueCache
from workers.run.event_feed import EventFeed, scripts_of
from workers.run.shard import shard_traces
from workers.targets.devices import CLEAN, functions_on, ops_of, twin_of
from workers.targets.specstorm import Specstorm
from workers.targets.target import DeviceError, RunConfig, Watch
from workers.targets.warm_up import is_compiled, marker

COMPILATION = "workers.kernels.compilation.triton"
# The first traces need most of the variants, each further trace adds fewer.
SHARDS = tuple(Shard(profile="mixed", seed=0, number=number, traces=6) for number in range(16))
# The traces run with tensors on the CPU; the kernels are compiled for the GPU.
ON_TENSORS, ON_GPU = RunConfig(device="triton-cpu"), RunConfig(device="cuda")


def listing(op: Callable[[Any], None], variants: Any) -> Any:
    """Return an op that runs in NumPy, and adds the kernels it would launch to `variants`."""
    twin = twin_of(op)

    @wraps(op)
    def both(a: Any) -> None:
        variants.add(twin, a)
        op(a.on({name: getattr(a, name).numpy() for name, mode in a.modes().items() if mode != "int"}))

    return both


def rehearse(trace: Trace, kind: Specstorm, value_cache: ModelValueCache) -> None:
    """Run a trace without judges, to record its kernel launches."""
    target = kind.open(trace, ON_TENSORS, Watch())
    try:
        feed = EventFeed(trace, target, scripts_of(trace, value_cache, kind.capabilities))
        while not feed.drained():
            feed.step()
        target.drain()
    finally:
        target.close()


def variants_of(shard: Shard) -> set[Any]:
    """Return the kernel variants that the traces of a shard launch."""
    variants = import_module(COMPILATION).Variants()
    kind, value_cache = (
        Specstorm(EngineFunctions(**{name: listing(op, variants) for name, op in ops_of(CLEAN).items()})),
        ModelValueCache(),
    )
    for trace in shard_traces(shard):
        rehearse(trace, kind, value_cache)
    found: set[Any] = variants.found
    return found


def compile_all() -> None:
    """Compile kernel variants of rehearsed traces for the current GPU, in parallel."""
    compilation = import_module(COMPILATION)
    # A forked process cannot use the GPU; compiling does not need it.
    compilation.detach_driver()
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        variants = set().union(*pool.imap_unordered(variants_of, SHARDS))
        # Kernels with more arguments usually take longer to compile: start with them.
        ordered = sorted(variants, key=lambda variant: (-len(variant.specialization), variant))
        for _ in pool.imap_unordered(compilation.compile_variant, ordered):
            pass


def main() -> int:
    """Compile the kernels once; wait if another process is already compiling them."""
    with marker().open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not is_compiled(Path(file.name)):
            try:
                functions_on(ON_GPU)
            except DeviceError:
                # Runs on the GPU will report the error.
                return 2
            compile_all()
            file.write("compiled\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
