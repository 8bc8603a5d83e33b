"""Overlay of a package: a tree of its Python sources that is laid over an installation, whose compiled code stays."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError
from pathlib import Path

_INSTALLED = re.compile(r"/\S*/site-packages/")


class Overlay:
    """Finder of a package's modules: in a folder of sources, and where the package is installed.

    Of a tree that `is_whole` the installation adds compiled modules alone, else all that the tree has not.
    """

    def __init__(self, package: str, folder: Path, is_whole: bool = False) -> None:
        found = PathFinder.find_spec(package)
        assert found is not None, f"{package} is installed"
        self.folder, self.package = folder, package
        self.installed = list(found.submodule_search_locations or ())
        self._roots = [str(folder / package), *([] if is_whole else self.installed)]

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return where a module of the package is; a package is in all folders that have it.

        Raises:
            ModuleNotFoundError: it is compiled, and not installed: the tree's own was built for something else.
        """
        top, *inner = name.split(".")
        if top != self.package:
            return None
        spec = _found(name, self._roots, inner)
        if spec is None or isinstance(spec.loader, ExtensionFileLoader):
            compiled = _found(name, self.installed, inner)
            if compiled is not None and isinstance(compiled.loader, ExtensionFileLoader):
                return compiled
            if spec is not None:
                raise ModuleNotFoundError(f"{name} is compiled, and not installed", name=name)
        if spec is not None and spec.submodule_search_locations is not None:
            folders = [os.path.join(root, *inner) for root in self._roots]
            spec.submodule_search_locations = [folder for folder in folders if os.path.isdir(folder)]
        return spec


def _found(name: str, roots: Sequence[str], inner: Sequence[str]) -> ModuleSpec | None:
    parents = [os.path.join(root, *inner[:-1]) if inner else os.path.dirname(root) for root in roots]
    return PathFinder.find_spec(name, parents)


class OtherName(DistributionFinder):
    """Finder of the metadata of an installed distribution under a name that its package's sources look for."""

    def __init__(self, name: str, version: str) -> None:
        self._found = _Named(name, version)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Find no module: it is asked for distributions."""

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        if context is not None and context.name == self._found.name:
            yield self._found


class _Named(Distribution):
    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError(f"{path}: there is nothing but metadata")


def from_packages_on(text: str) -> str:
    """Return a text that names files from their package on, installed or laid over it, without folders before that."""
    for finder in sys.meta_path:
        if isinstance(finder, Overlay):
            text = text.replace(f"{finder.folder}/", "")
    return _INSTALLED.sub("", text)


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, nothing if it is not installed."""
    try:
        return Distribution.from_name(distribution).version
    except PackageNotFoundError:
        return ""
