"""Find an engine's virtual environment, and set up and start its process."""

import atexit
from collections.abc import Callable
from pathlib import Path

from workers.targets.child.process import SECONDS, Keeper, Launch, Seconds

# One CPU core for each engine, no network access.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


def install_advice_for(target: str, home: str, root: Path) -> str:
    """Return the `make` command that installs an engine, as advice in a message.

    If Specstorm was installed from a wheel, the advice names the checkout and `--engine-home`.
    """
    if (root / "Makefile").is_file():
        return f"make {target}"
    return f"`make {target}` in a checkout of Specstorm makes {home}; name that with --engine-home"


def python_of(home: Path) -> Path | None:
    """Return the Python interpreter of an installation, None if it is missing or incomplete."""
    python = home / "bin" / "python"
    return python if (home / "installed").exists() and python.exists() else None


def site_packages_of(home: Path, package: str) -> Path | None:
    """Return the site-packages folder of an installation that has a package, None if none has."""
    return next((found.parent for found in home.glob(f"lib/python*/site-packages/{package}")), None)


def keeper_until_exit(engine: str, launch: Callable[[], Launch], seconds: Seconds = SECONDS) -> Keeper:
    """Return a `Keeper` of an engine's process; this process ends it when it exits."""
    keeper = Keeper(engine, launch, seconds)
    atexit.register(keeper.stop)
    return keeper
