"""Process of an engine of vLLM: the only one in which torch and vLLM are imported."""

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
from workers.targets.child.inside.overlay import OtherName, Overlay, version_of
from workers.targets.child.inside.replacements import Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.vllm.inside.engines import Engines
from workers.targets.vllm.inside.hooks import hooks_on
from workers.targets.vllm.inside.kernels.table import TABLE
from workers.targets.vllm.inside.models import inspect_here
from workers.targets.vllm.inside.replacements import replacements_on
from workers.targets.vllm.inside.watched import WatchedTests
from workers.targets.vllm.names import RunnerName
from workers.targets.vllm.sources import PACKAGE, is_whole

# Seen to run here, 0.33.0 as sources alone (docs/new_release.md).
KNOWN = ("0.32.0", "0.33.0")
# Folders of what launches its kernels: a report names who does.
_LAUNCHERS = ("vllm/triton_utils", "vllm/model_executor/warmup")


def start(arguments: Sequence[str]) -> tuple[Engines, SimulatedDevice | Gpu | None, str]:
    """Load vLLM on a device for one of its runners; return its engines, that device if it has lanes, and its version.

    The arguments are the device, the runner, how its kernels run, the folder of models, the fixes to apply, and a
    source tree to lay over the installed package.
    """
    where, named, kernels, models, fixes, *overlay = arguments
    runner: RunnerName = "v2" if named == "v2" else "v1"
    # What vLLM caches of its classes is of other sources than these, if another process has left it.
    os.environ["VLLM_CACHE_ROOT"] = os.path.join(tempfile.gettempdir(), "vllm")
    package = "vllm" if where == "cuda" else PACKAGE
    for folder in overlay:
        lay_over(Path(folder), package)
    note_edits("vllm", edited_modules.install("vllm", fixes, [*map(Path, overlay)]))
    if runner == "v2":
        # Which runner it takes where Triton is found is vLLM's own choice.
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    if runner == "v2" and where == "sim":
        interpret()
    import vllm  # noqa: PLC0415  what is laid over comes first

    torch.set_num_threads(1)
    version = Version("vLLM", vllm.__version__, KNOWN, over=version_of(package) if overlay else "")
    device: SimulatedDevice | Gpu | None = None
    if where == "cuda":
        device = Gpu()
        inspect_here()
    if where == "sim":
        device = _device(*map(Path, overlay))
    definitions = Definitions(TABLE if kernels == "defined" else {})
    for replacement in replacements_on(where, runner, definitions):
        replacement.apply(version)
    for hooks in hooks_on(where, runner):
        hooks.check(version)
    return Engines(Path(models), runner, where, definitions), device, version.text


def lay_over(folder: Path, package: str = PACKAGE) -> None:
    """Have vLLM found in a folder of its sources first: all of them, as of a release or a checkout, or a few."""
    sys.meta_path.insert(0, Overlay("vllm", folder, is_whole=is_whole(folder)))
    if package == PACKAGE:
        # By the name that vLLM's own sources know, and not the installed build's.
        sys.meta_path.insert(0, OtherName("vllm", f"{version_of(PACKAGE)}+cpu"))


def _device(sources: Path | None = None) -> SimulatedDevice:
    """Make the simulated device known to vLLM, of which nothing that looks for one is loaded yet."""
    installed = Path(str(distribution(PACKAGE).locate_file("")))
    launchers = [folder / each for folder in (installed, *filter(None, [sources])) for each in _LAUNCHERS]
    device = SimulatedDevice(own=("vllm.v1.",), pools=("_uva_bufs",), sources=sources, launchers=launchers)
    from workers.targets.vllm.inside.platform import install  # noqa: PLC0415  its names are known from here on

    install(device)
    return device


def host(arguments: Sequence[str]) -> tuple[Host, str]:
    """Return the host of vLLM's engines, and its version."""
    engines, device, version = start(arguments)
    return Host(engines, device, engines.definitions.interpreted), version


def watched_tests(runner: RunnerName, models: str, schedule: Schedule, *overlay: str) -> WatchedTests:
    """Load vLLM on the simulated device in a process that runs tests of its own, and return what watches these.

    Fixes of known races are applied: a race that is reported is new.
    """
    _, device, _ = start(("sim", runner, "defined", models, RACES, *overlay))
    import vllm  # noqa: PLC0415  it is loaded by now
    from vllm.platforms import current_platform  # noqa: PLC0415

    # As a worker does, which tests of kernels have none of.
    current_platform.register_triton_kernel_overrides()
    assert isinstance(device, SimulatedDevice)
    return WatchedTests(device, schedule, Version("vLLM", vllm.__version__, KNOWN))


if __name__ == "__main__":
    serve(host)
