"""Overlay: a tree of Python sources whose files replace the files of an installed package.

Compiled modules always come from the installation.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError
from pathlib import Path

_INSTALLED = re.compile(r"/\S*/site-packages/")


class Overlay:
    """Import hook that looks for a module in the source tree, then in the installed package.

    If the tree `is_complete`, only compiled modules come from the installation; otherwise every module that the tree
    lacks.
    """

    def __init__(self, package: str, folder: Path, is_complete: bool = False) -> None:
        found = PathFinder.find_spec(package)
        assert found is not None, f"{package} is installed"
        self.folder, self.package = folder, package
        self.installed = list(found.submodule_search_locations or ())
        self._roots = [str(folder / package), *([] if is_complete else self.installed)]

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the module's spec, from the source tree or else from the installed package.

        Raises:
            ModuleNotFoundError: the module is compiled and only in the tree, where it was built for another
            environment.
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
                raise ModuleNotFoundError(f"{name} is a compiled module that is not installed", name=name)
        if spec is not None and spec.submodule_search_locations is not None:
            folders = [os.path.join(root, *inner) for root in self._roots]
            spec.submodule_search_locations = [folder for folder in folders if os.path.isdir(folder)]
        return spec


def _found(name: str, roots: Sequence[str], inner: Sequence[str]) -> ModuleSpec | None:
    parents = [os.path.join(root, *inner[:-1]) if inner else os.path.dirname(root) for root in roots]
    return PathFinder.find_spec(name, parents)


class DistributionAlias(DistributionFinder):
    """Import hook that also reports a package's version under another distribution name."""

    def __init__(self, name: str, version: str) -> None:
        self._found = _VersionMetadata(name, version)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Return None: this finder serves distribution metadata only, never modules."""

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        if context is not None and context.name == self._found.name:
            yield self._found


class _VersionMetadata(Distribution):
    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError(f"{path}: only METADATA of this distribution can be read")


def relative_to_packages(text: str) -> str:
    """Return a text with file paths made relative to the installed packages or overlay.

    This applies to files of the installed package and of an overlay.
    """
    for finder in sys.meta_path:
        if isinstance(finder, Overlay):
            text = text.replace(f"{finder.folder}/", "")
    return _INSTALLED.sub("", text)


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, empty if it is not installed."""
    try:
        return Distribution.from_name(distribution).version
    except PackageNotFoundError:
        return ""
