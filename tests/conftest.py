"""Which tests may run beside each other when `make test` gives them to two processes."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a file's tests together, since they share what they have computed, and those that start a Ray."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            with_ray = item.path.parent.name == "cluster"
            item.add_marker(pytest.mark.xdist_group("cluster" if with_ray else item.location[0]))
