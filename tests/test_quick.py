"""The skip lists of `make quick` and `make test` name existing tests."""

import ast
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.long import LONG
from tests.quick import NOT_QUICK, SLOW

FOLDER = Path(__file__).resolve().parent
SETTINGS = settings()


def test_skipped_tests_exist() -> None:
    nodes = (node for path in FOLDER.rglob("test_*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    assert sorted((SLOW | LONG.keys()) - named) == []
    assert [path for path in NOT_QUICK if not (FOLDER / path).exists()] == []


def test_settings_do_not_depend_on_time_or_chance() -> None:
    # The settings outside tests, which decorators use, differ from those inside a test.
    assert SETTINGS.deadline is None
    assert SETTINGS.derandomize
    assert SETTINGS.database is None
    assert HealthCheck.too_slow in SETTINGS.suppress_health_check
