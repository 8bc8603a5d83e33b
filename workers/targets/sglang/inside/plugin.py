"""Register the simulated platform with SGLang by an entry point in memory."""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path

from workers.simulated_torch.backend import DEVICE_NAME

PLATFORM = "workers.targets.sglang.inside.platform"
_DISTRIBUTION = "specstorm-simulated-platform"
_FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: 0\n",
    "entry_points.txt": f"[sglang.srt.platforms]\n{DEVICE_NAME} = {PLATFORM}:activated\n",
}


class _Plugin(Distribution):
    def read_text(self, filename: str) -> str | None:
        return _FILES.get(filename)

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError(f"{path}: only METADATA of this distribution can be read")


class _Finder(DistributionFinder):
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Return None: this finder is for the metadata of distributions, not for modules."""

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        if context is None or context.name in (None, _DISTRIBUTION):
            yield _Plugin()


def install() -> None:
    """Register the platform's entry point, before SGLang is imported."""
    sys.meta_path.append(_Finder())
    os.environ["SGLANG_PLATFORM"] = DEVICE_NAME
