"""Main module of vLLM's child process, the only one that imports torch and vLLM."""

import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import torch

from scenarios.events import Schedule
from workers.edits.fix import RACES
from workers.simulated_torch.kernel_definitions import Definitions
from workers.targets.child.inside import edited_modules
from workers.targets.child.inside.gpu import Gpu
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.interpreter import interpret
from workers.targets.child.inside.main import serve
from workers.targets.child.inside.notes import note_edits
from workers.targets.child.inside.overlay import DistributionAlias, Overlay, version_of
from workers.targets.child.inside.replacements import Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.vllm.inside.engines import Engines
from workers.targets.vllm.inside.hooks import hooks_on
from workers.targets.vllm.inside.kernels.table import TABLE
from workers.targets.vllm.inside.models import inspect_here
from workers.targets.vllm.inside.rank_processes.failures import record_failures
from workers.targets.vllm.inside.rank_processes.setup import RankProcesses
from workers.targets.vllm.inside.ranks.setup import Ranks
from workers.targets.vllm.inside.replacements import replacements_on
from workers.targets.vllm.inside.watched import WatchedTests
from workers.targets.vllm.names import ON_CPUS, RunnerName
from workers.targets.vllm.sources import PACKAGE, is_complete

# Tested versions.
KNOWN_VERSIONS = (*sorted(ON_CPUS),)
# Folders that launch kernels for others: reports name the caller instead.
_LAUNCHERS = ("vllm/triton_utils", "vllm/model_executor/warmup")


def start(arguments: Sequence[str]) -> tuple[Engines, SimulatedDevice | RankProcesses, str]:
    """Load vLLM for a device and a model runner; return the engine pool, device and version.

    The arguments are the device, the runner, how kernels run, the folder of models, the fixes to apply, and optionally
    a source tree to lay over the installed package.
    """
    where, _, _, models, *_ = arguments
    runner, version, definitions, simulated = load(arguments)
    for hooks in hooks_on(where, runner):
        hooks.check(version)
    if simulated is None:
        if where == "cuda":
            inspect_here()
        device = RankProcesses(Gpu() if where == "cuda" else None)
        return Engines(Path(models), runner, where, definitions, device), device, version.text
    return Engines(Path(models), runner, where, definitions, Ranks(simulated, version)), simulated, version.text


def load(arguments: Sequence[str]) -> tuple[RunnerName, Version, Definitions, SimulatedDevice | None]:
    """Load vLLM with overlay, fixes and replacements; return runner, version, definitions, simulated device."""
    where, named, kernels, _, fixes, *overlay = arguments
    runner: RunnerName = "v2" if named == "v2" else "v1"
    # vLLM caches facts about its classes; a cache of another process may belong to other sources.
    os.environ["VLLM_CACHE_ROOT"] = os.path.join(tempfile.gettempdir(), "vllm")
    package = "vllm" if where == "cuda" else PACKAGE
    for folder in overlay:
        overlay_sources(Path(folder), package)
    note_edits("vllm", edited_modules.install("vllm", fixes, [*map(Path, overlay)]))
    if runner == "v2":
        # With Triton vLLM selects the runner itself.
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    if runner == "v2" and where == "sim":
        interpret()
    import vllm  # noqa: PLC0415  after the overlay is installed

    torch.set_num_threads(1)
    version = Version("vLLM", vllm.__version__, KNOWN_VERSIONS, over=version_of(package) if overlay else "")
    simulated = _device(*map(Path, overlay)) if where == "sim" else None
    definitions = Definitions(TABLE if kernels == "defined" else {})
    for replacement in replacements_on(where, runner, definitions):
        replacement.apply(version)
    return runner, version, definitions, simulated


def overlay_sources(folder: Path, package: str = PACKAGE) -> None:
    """Import vLLM's modules from a source tree first, then from the installed package."""
    sys.meta_path.insert(0, Overlay("vllm", folder, is_complete=is_complete(folder)))
    if package == PACKAGE:
        # vLLM's sources look up the distribution `vllm`; the CPU build has another name.
        sys.meta_path.insert(0, DistributionAlias("vllm", f"{version_of(PACKAGE)}+cpu"))


def _device(sources: Path | None = None) -> SimulatedDevice:
    """Create the simulated device and register it with PyTorch, before vLLM is imported."""
    installed = Path(str(distribution(PACKAGE).locate_file("")))
    launchers = [folder / each for folder in (installed, *filter(None, [sources])) for each in _LAUNCHERS]
    device = SimulatedDevice(own=("vllm.v1.",), pools=("_uva_bufs",), sources=sources, launchers=launchers)
    from workers.targets.vllm.inside.platform import install  # noqa: PLC0415  the device exists only from here on

    install(device)
    return device


def host(arguments: Sequence[str]) -> tuple[Host, str]:
    """Return the `Host` that answers questions about vLLM's engines, and vLLM's version."""
    engines, device, version = start(arguments)
    failed = device.failure if isinstance(device, RankProcesses) else None
    return Host(engines, device, engines.definitions.interpreted, failed), version


def watched_tests(runner: RunnerName, models: str, schedule: Schedule, *overlay: str) -> WatchedTests:
    """Load vLLM on the simulated device; return an observer of vLLM's own tests.

    Fixes of known races are applied, so that a reported race is new.
    """
    _, device, _ = start(("sim", runner, "defined", models, RACES, *overlay))
    import vllm  # noqa: PLC0415  `start` has loaded it
    from vllm.platforms import current_platform  # noqa: PLC0415

    # A worker does this; tests of kernels have no worker.
    current_platform.register_triton_kernel_overrides()
    assert isinstance(device, SimulatedDevice)
    return WatchedTests(device, schedule, Version("vLLM", vllm.__version__, KNOWN_VERSIONS))


if __name__ == "__main__":
    serve(host)
elif __name__ == "__mp_main__":
    # A worker process of vLLM: it imports the main module of the process that starts it, with its arguments.
    record_failures()
    load(sys.argv[1:])
