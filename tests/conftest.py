"""Which tests `make quick` runs, and which one process runs in turn when the suite is given to two."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.quick import NOT_QUICK, QUICK_PARAMETERS, SLOW

FOLDER = Path(__file__).parent
# They start a Ray, or share one: one process runs them, one after another; but for the file whose campaigns wait.
WITH_RAY = ("tests/cluster/campaigns/", "tests/cluster/cli/", "tests/cluster/dispatch/", "tests/cluster/jobs/")
WAITING = "tests/cluster/dispatch/test_ray_parts.py"
# They start the real engine, or interpret its kernels, for minutes.
NEEDS_VLLM = {
    FOLDER / "benchmarks/power/test_vllm_power_installed.py",
    *(
        FOLDER / "workers/targets/vllm" / name
        for name in (
            "test_control.py",
            "test_exports.py",
            "test_handoffs.py",
            "test_kernels.py",
            "test_second_runner.py",
            "test_sessions.py",
            "test_vllm.py",
        )
    ),
}
NEEDS_SGLANG = {
    FOLDER / "benchmarks/power/test_sglang_power_installed.py",
    FOLDER / "workers/targets/sglang/test_sglang.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the tests of `make quick`: tests/quick.py")
    parser.addoption("--vllm", action="store_true", help="also the tests of `make test-vllm`, which need .venv-vllm")
    parser.addoption("--sglang", action="store_true", help="also those of `make test-sglang`, which need .venv-sglang")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is not quick; None leaves it to others."""
    if config.getoption("--quick") and any(collection_path == FOLDER / path for path in NOT_QUICK):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what is quick: no test that is known to be slow, and of each other test its first parameters."""
    if not config.getoption("--vllm"):
        items[:] = [item for item in items if item.path not in NEEDS_VLLM]
    if not config.getoption("--sglang"):
        items[:] = [item for item in items if item.path not in NEEDS_SGLANG]
    if not config.getoption("--quick"):
        return
    num_seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        num_seen[name] += 1
        is_quick = num_seen[name] <= QUICK_PARAMETERS and name.rpartition("::")[2] not in SLOW
        (kept if is_quick else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together, since they share what they have computed, and all that start a Ray."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  there is none unless tests are given to several

    def together(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "cluster" if file.startswith(WITH_RAY) and file != WAITING else file

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = together
    return scheduler
