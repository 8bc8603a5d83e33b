"""Overlay of a package: a tree of its sources that is laid over the installed ones."""

import os
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


class Overlay:
    """Finder of a package's modules: in a folder of sources first, then where the package is installed."""

    def __init__(self, package: str, folder: Path) -> None:
        found = PathFinder.find_spec(package)
        assert found is not None, f"{package} is installed"
        self._package = package
        self._roots = [str(folder / package), *(found.submodule_search_locations or ())]

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return where a module of the package is; a package is in all folders that have it."""
        top, *inner = name.split(".")
        if top != self._package:
            return None
        parents = [os.path.join(root, *inner[:-1]) if inner else os.path.dirname(root) for root in self._roots]
        spec = PathFinder.find_spec(name, parents)
        if spec is not None and spec.submodule_search_locations is not None:
            folders = [os.path.join(root, *inner) for root in self._roots]
            spec.submodule_search_locations = [folder for folder in folders if os.path.isdir(folder)]
        return spec
