"""The native library as this process has loaded it; PyTorch's backends are the process's, and so is this."""

from functools import cache
from typing import cast

from workers.targets.simulated_torch.build import load
from workers.targets.simulated_torch.native import Native


@cache
def native() -> Native:
    """Return the native library, which is built and loaded at the first call.

    Raises:
        BuildError: it cannot be built here.
    """
    return cast(Native, load())
