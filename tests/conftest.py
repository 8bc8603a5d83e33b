"""Selection of tests for each `make` target, and their distribution to processes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.long import LONG
from tests.quick import NOT_QUICK, QUICK_PARAMETERS, SLOW

# A property has the same verdict in each run and on any machine: the same examples, and no example is dropped because
# it takes long. `test_quick.py` checks that tests use these settings.
SAME_EVERYWHERE = "same-everywhere"
settings.register_profile(
    SAME_EVERYWHERE,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=False,
)
settings.load_profile(SAME_EVERYWHERE)

FOLDER = Path(__file__).parent
# Tests that start or share a Ray: one process runs each group, except for the file with mostly waiting campaigns.
WITH_RAY = (
    ("tests/cluster/campaigns/", "tests/cluster/cli/"),
    ("tests/cluster/dispatch/", "tests/cluster/jobs/"),
)
WAITING = "tests/cluster/dispatch/test_ray_parts.py"
# These files use the same generated traces, which one process generates once.
WITH_GENERATED_TRACES = tuple(
    f"tests/scenarios/{name}.py"
    for name in (
        "generation/test_catalogue",
        "generation/test_strategies",
        "generation/test_structure",
        "test_capabilities",
        "test_codec",
    )
)
# Tests that start the real engine, or interpret its kernels, for minutes.
NEEDS_VLLM = {
    FOLDER / "benchmarks/power/test_vllm_power_installed.py",
    *(
        FOLDER / "workers/targets/vllm" / name
        for name in (
            "test_control.py",
            "test_exports.py",
            "test_handoffs.py",
            "test_kernels.py",
            "test_rank_processes.py",
            "test_second_runner.py",
            "test_sessions.py",
            "test_vllm.py",
            "test_windows.py",
            "test_watched.py",
        )
    ),
}
NEEDS_SGLANG = {
    FOLDER / "benchmarks/power/test_sglang_power_installed.py",
    FOLDER / "workers/targets/sglang/test_sglang.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only the tests of `make quick`: tests/quick.py")
    parser.addoption("--long", action="store_true", help="also the tests of `make test-long`: tests/long.py")
    parser.addoption("--vllm", action="store_true", help="also the tests of `make test-vllm`, which need .venv-vllm")
    parser.addoption("--sglang", action="store_true", help="also the tests of `make test-sglang` (needs .venv-sglang)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file that is not quick; None leaves the decision to other hooks."""
    if config.getoption("--quick") and any(collection_path == FOLDER / path for path in NOT_QUICK):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need another engine or take long, for `make quick` most parameters."""
    if not config.getoption("--vllm"):
        items[:] = [item for item in items if item.path not in NEEDS_VLLM]
    if not config.getoption("--sglang"):
        items[:] = [item for item in items if item.path not in NEEDS_SGLANG]
    if not config.getoption("--long"):
        _leave_out(config, items, lambda name, number: number > LONG.get(name, number))
    if config.getoption("--quick"):
        _leave_out(config, items, lambda name, number: name in SLOW or number > QUICK_PARAMETERS)


def _leave_out(config: pytest.Config, items: list[pytest.Item], is_left: Callable[[str, int], bool]) -> None:
    """Deselect tests by name, or by the number of their parameter set, counted from 1."""
    num_seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        num_seen[test] += 1
        (left_out if is_left(test.rpartition("::")[2], num_seen[test]) else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run in one process: tests of a file, files with shared results, halves of the Ray tests."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  xdist is loaded for several processes only

    def together(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        groups = [
            str(files) for files in (*WITH_RAY, WITH_GENERATED_TRACES) if file.startswith(files) and file != WAITING
        ]
        return next(iter(groups), file)

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = together
    return scheduler
