"""Program that runs every check of the device in this process and prints the errors as JSON.

Usage: python -m tests.workers.simulated_torch.check_runs
"""

import json
import traceback
from collections.abc import Callable

from tests.workers.simulated_torch import (
    batch_copy_checks,
    device_checks,
    graph_checks,
    order_checks,
    rank_checks,
)
from tests.workers.targets.child import layer_checks
from workers.simulated_torch.device import Device, activate

_MODULES = (batch_copy_checks, device_checks, graph_checks, layer_checks, order_checks, rank_checks)
CHECKS: dict[str, Callable[[Device], None]] = {
    name: check
    for module in _MODULES
    for name, check in vars(module).items()
    if getattr(check, "__annotations__", {}).get("device") is Device and check.__module__ == module.__name__
}


def main() -> None:
    """Print the traceback of each check that failed, otherwise null."""
    device = activate()
    results: dict[str, str | None] = {}
    for name, check in CHECKS.items():
        try:
            check(device)
            results[name] = None
        except BaseException:
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
