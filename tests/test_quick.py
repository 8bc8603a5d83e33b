"""What `make quick` and `make test` leave out exists; no property depends on how fast or busy the machine is."""

import ast
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.long import LONG
from tests.quick import NOT_QUICK, SLOW

FOLDER = Path(__file__).resolve().parent
SETTINGS = settings()


def test_what_is_left_out_is_there() -> None:
    nodes = (node for path in FOLDER.rglob("test_*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    assert sorted((SLOW | LONG.keys()) - named) == []
    assert [path for path in NOT_QUICK if not (FOLDER / path).exists()] == []


def test_properties_do_not_depend_on_time_or_chance() -> None:
    # As they are where a test is decorated, which is not within a test.
    assert SETTINGS.deadline is None
    assert SETTINGS.derandomize
    assert SETTINGS.database is None
    assert HealthCheck.too_slow in SETTINGS.suppress_health_check
