"""The check of an engine's module variables refuses a variable that no table assigns to ranks."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from workers.targets.child.inside.rank_variables import RankVariables, assigned_in_functions
from workers.targets.child.inside.replacements import Unknown, Version

VERSION = Version("some", "1.0", ("1.0",))
SOURCE = '''"""A module with the words global state in a text."""

_group = None
_count = 0
_fixed = 1


def set_group(group):
    global _group, \\
        _count
    _group = group
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "groups.py"
    file.write_text(SOURCE)
    module = ModuleType("some_engine.groups")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "some_engine"


def test_assigned_in_functions_ignores_texts_and_constants(package: str) -> None:
    file = sys.modules[f"{package}.groups"].__file__
    assert file is not None
    assert assigned_in_functions(Path(file)) == ("_count", "_group")


@pytest.mark.parametrize(
    "tables",
    [
        RankVariables("some_engine", {"some_engine.groups": ("_group",)}, {"some_engine.groups": ("_count",)}, ()),
        RankVariables("some_engine", {}, {}, ("some_engine.groups",)),
        RankVariables("another", {}, {}, ()),
    ],
)
def test_check_accepts_variables_of_a_table(package: str, tables: RankVariables) -> None:
    tables.check(VERSION)


def test_check_refuses_a_new_variable_by_name(package: str) -> None:
    tables = RankVariables("some_engine", {"some_engine.groups": ("_group",)}, {}, ())
    with pytest.raises(Unknown, match=r"rule for ranks about the variable some_engine\.groups\._count"):
        tables.check(VERSION)
