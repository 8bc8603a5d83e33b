"""Installation of an engine in an environment of its own: where it is, how it is made, what its process runs with."""

import atexit
from collections.abc import Callable
from pathlib import Path

from workers.targets.child.process import Keeper, Launch

# One core an engine, no network.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


def making_of(target: str, home: str, root: Path) -> str:
    """Return how an installation is made by a target of `make`, in a checkout or for what was installed of a wheel."""
    if (root / "Makefile").is_file():
        return f"make {target}"
    return f"`make {target}` in a checkout of Specstorm makes {home}; name that with --engine-home"


def python_of(home: Path) -> Path | None:
    """Return the Python of an installation that is complete, None if there is none."""
    python = home / "bin" / "python"
    return python if (home / "installed").exists() and python.exists() else None


def packages_of(home: Path, package: str) -> Path | None:
    """Return the folder of an installation that a package is installed in, None if there is none."""
    return next((found.parent for found in home.glob(f"lib/python*/site-packages/{package}")), None)


def kept(engine: str, launch: Callable[[], Launch]) -> Keeper:
    """Return a keeper of an engine's process that ends with this one."""
    keeper = Keeper(engine, launch)
    atexit.register(keeper.stop)
    return keeper
