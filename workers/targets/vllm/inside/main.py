"""Process of an engine of vLLM: the only one in which torch and vLLM are imported."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from workers.targets.child.inside.host import Host
from workers.targets.child.inside.interpreter import interpret
from workers.targets.child.inside.main import serve
from workers.targets.child.inside.overlay import Overlay
from workers.targets.child.inside.replacements import Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.simulated_torch.kernel_definitions import Definitions
from workers.targets.vllm.inside.engines import Engines
from workers.targets.vllm.inside.hooks import hooks_on
from workers.targets.vllm.inside.kernels.table import TABLE
from workers.targets.vllm.inside.replacements import replacements_on
from workers.targets.vllm.runner_name import RunnerName

# Seen to run here.
KNOWN = ("0.32.0",)


def start(arguments: Sequence[str]) -> tuple[Engines, SimulatedDevice | None, str]:
    """Load vLLM on a device for one of its runners; return its engines, that device, and its version.

    The arguments are the device, the runner, how its kernels run, the folder of models, and a tree of sources that is
    laid over.
    """
    where, named, kernels, models, *overlay = arguments
    runner: RunnerName = "v2" if named == "v2" else "v1"
    for folder in overlay:
        sys.meta_path.insert(0, Overlay("vllm", Path(folder)))
    if runner == "v2":
        # Which runner it takes where Triton is found is vLLM's own choice.
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    if runner == "v2" and where == "sim":
        interpret()
    import vllm  # noqa: PLC0415  what is laid over comes first

    torch.set_num_threads(1)
    version = Version("vLLM", vllm.__version__, KNOWN)
    device = _device(*map(Path, overlay)) if where == "sim" else None
    definitions = Definitions(TABLE if kernels == "defined" else {})
    for replacement in replacements_on(where, runner, definitions):
        replacement.apply(version)
    for hooks in hooks_on(where, runner):
        hooks.check(version)
    return Engines(Path(models), runner, where, definitions), device, version.number


def _device(sources: Path | None = None) -> SimulatedDevice:
    """Make the simulated device known to vLLM, of which nothing that looks for one is loaded yet."""
    device = SimulatedDevice(own=("vllm.v1.",), pools=("_uva_bufs",), sources=sources)
    from workers.targets.vllm.inside.platform import install  # noqa: PLC0415  its names are known from here on

    install(device)
    return device


def host(arguments: Sequence[str]) -> tuple[Host, str]:
    """Return the host of vLLM's engines, and its version."""
    engines, device, version = start(arguments)
    return Host(engines, device, engines.definitions.interpreted), version


if __name__ == "__main__":
    serve(host)
