"""The lists of what `make quick` and `make test` leave out name files and tests that there are."""

import ast
from pathlib import Path

from tests.long import LONG
from tests.quick import NOT_QUICK, SLOW

FOLDER = Path(__file__).resolve().parent


def test_what_is_left_out_is_there() -> None:
    nodes = (node for path in FOLDER.rglob("test_*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    assert sorted((SLOW | LONG.keys()) - named) == []
    assert [path for path in NOT_QUICK if not (FOLDER / path).exists()] == []
