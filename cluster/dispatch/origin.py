"""Check that our packages are imported from this project, not from another distribution."""

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("cluster", "findings", "scenarios", "workers")
ROOT = Path(__file__).resolve().parents[2]


def foreign_packages() -> list[str]:
    """Return a message for each of our packages that another distribution provides."""
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if origin != ROOT / package / "__init__.py":
            seen = "nowhere" if origin is None else str(origin.parent)
            advice = "; install this checkout again: make run" if origin is None else ""
            found.append(f"package {package!r} is imported from {seen}; expected {ROOT / package}{advice}")
    return found
