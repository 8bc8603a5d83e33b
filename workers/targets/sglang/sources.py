"""Files of SGLang's Python sources that are laid over an installation."""

from pathlib import Path


def told(tree: str, home: Path) -> str:
    """Return what runs where files are laid over the installation in a folder."""
    count = len([*Path(tree, "sglang").rglob("*.py")])
    return f"{count} file{'s' * (count != 1)} of {tree} over SGLang {installed(home) or 'of an unknown version'}"


def installed(home: Path) -> str:
    """Return the version of the installation in a folder; nothing where none is told."""
    for found in home.glob("lib/python*/site-packages/sglang-*.dist-info"):
        return found.name.removesuffix(".dist-info").partition("-")[2]
    return ""
