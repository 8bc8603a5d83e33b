"""Compilation of the native library, as a process of its own: NAME FOLDER FLAG..."""

import sys
from pathlib import Path

from torch.utils import cpp_extension

from workers.targets.simulated_torch.build import SOURCES


def main(name: str, folder: str, *flags: str) -> None:
    """Build the library in a folder, with PyTorch's own flags and these."""
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    cpp_extension.load(name, sources, extra_cflags=list(flags), build_directory=str(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
