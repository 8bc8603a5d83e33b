"""Main program of SGLang's process; no other process imports SGLang."""

import gc
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from workers.simulated_torch.kernel_definitions import Definitions
from workers.targets.child.inside import edited_modules
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.interpreter import interpret
from workers.targets.child.inside.main import serve
from workers.targets.child.inside.notes import note_edits
from workers.targets.child.inside.overlay import Overlay
from workers.targets.child.inside.replacements import Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.sglang.inside import absent, plugin
from workers.targets.sglang.inside.engines import Engines
from workers.targets.sglang.inside.kernels.table import TABLE
from workers.targets.sglang.inside.ranks.setup import Ranks

KNOWN = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")
# Only these model modules are imported: importing all of them takes a minute.
_MODELS = ("llama", "llama_eagle", "llama_eagle3", "registry", "transformers", "utils")


def host(arguments: Sequence[str], made: type[Host] = Host) -> tuple[Host, str]:
    """Import SGLang for the simulated device; return the `Host` that runs traces, and version.

    `arguments` are how kernels run, the folder of models, the fixes to apply, and optionally a source tree that
    overlays the installed package. `made` is the class of the host.
    """
    kernels, models, fixes, *overlay = arguments
    for folder in overlay:
        sys.meta_path.insert(0, Overlay("sglang", Path(folder)))
    note_edits("sglang", edited_modules.install("sglang", fixes, [*map(Path, overlay)]))
    os.environ["SGLANG_DISABLED_MODEL_ARCHS"] = ",".join(_other_models())
    interpret()
    absent.install()
    plugin.install()
    torch.set_num_threads(1)
    sources = Path(overlay[0]) if overlay else None
    device = SimulatedDevice(own=("sglang.srt.",), sources=sources, stand_in="workers/targets/sglang/inside/")
    import sglang.version  # noqa: PLC0415

    from workers.targets.sglang.inside.replacements import replacements  # noqa: PLC0415

    version = Version("SGLang", sglang.version.__version__, KNOWN)
    definitions = Definitions(TABLE if kernels == "defined" else {})
    for replacement in replacements(definitions):
        replacement.apply(version)
    # SGLang collects garbage for each new engine: objects that exist already are excluded to save time.
    gc.collect()
    gc.freeze()
    return made(Engines(Path(models), Ranks(device, version)), device, definitions.interpreted), version.text


def _other_models() -> list[str]:
    """Return the SGLang model modules that no trace uses, so that they are not imported."""
    package = find_spec("sglang")
    assert package is not None, "this process runs in SGLang's installation"
    folders = [Path(folder, "srt", "models") for folder in package.submodule_search_locations or ()]
    paths = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
    names = {path.stem for path in paths if not path.name.startswith("__")}
    return sorted(names - set(_MODELS))


if __name__ == "__main__":
    serve(host)
