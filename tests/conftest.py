"""Which tests one process runs in turn when `make test` gives the suite to two."""

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together, since they share what they have computed, and all that start a Ray."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  there is none unless tests are given to several

    def together(nodeid: str) -> str:
        return "cluster" if nodeid.startswith("tests/cluster/") else nodeid.partition("::")[0]

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = together
    return scheduler
