"""Mutants of functions, expressions, assignments and cases, with keys and lines."""

import ast
import textwrap

import pytest

from benchmarks.power.mutants import mutants_of, mutated

FUNCTION = '''
"""Module."""
from typing import Any

WIDTH: int = 4
Numbers = list[int]


def clip(values: Any, lengths: "list[int]", *, keep: bool = True) -> int:
    """Return what is left of 7 values."""
    total = 0
    for index in range(len(lengths)):
        if lengths[index] < WIDTH and not keep:
            total += min(lengths[index], 3)
            values.wait(index, total)
        assert total >= 0, f"{total + 1} is negative"
    values._observer.clipped(total)
    if total == 9:
        raise ValueError(f"{total} of {1 + 1}")
    return values[: total - 1]
'''


def changes_of(source: str) -> list[str]:
    return [mutant.change for mutant in mutants_of("one.py", textwrap.dedent(source))]


def test_mutants_of_function_are_exactly_these() -> None:
    assert sorted(changes_of(FUNCTION)) == sorted(
        [
            *("4 → 5", "4 → 3"),
            "True → False",
            *("0 → 1", "0 → -1"),
            *("range(len(lengths)) → range(len(lengths) + 1)", "range(len(lengths)) → range(len(lengths) - 1)"),
            "lengths[index] < WIDTH and (not keep) → lengths[index] < WIDTH or not keep",
            "lengths[index] < WIDTH and (not keep) → not (lengths[index] < WIDTH and (not keep))",
            "lengths[index] < WIDTH and (not keep) → not keep",
            "lengths[index] < WIDTH and (not keep) → lengths[index] < WIDTH",
            "lengths[index] < WIDTH → lengths[index] <= WIDTH",
            "lengths[index] < WIDTH → lengths[index] >= WIDTH",
            "not keep → keep",
            "total += min(lengths[index], 3) → pass",
            "total += min(lengths[index], 3) → total -= min(lengths[index], 3)",
            "min(lengths[index], 3) → max(lengths[index], 3)",
            *("3 → 4", "3 → 2"),
            "values.wait(index, total) → pass",
            "values.wait(index, total) → values.wait(total, index)",
            "total == 9 → total != 9",
            *("9 → 10", "9 → 8"),
            "return values[:total - 1] → pass",
            *(":total - 1 → :total - 1 + 1", ":total - 1 → :total - 1 - 1"),
            "total - 1 → total + 1",
            *("1 → 2", "1 → 0"),
        ]
    )


@pytest.mark.parametrize(
    ("expression", "changes"),
    [
        ("-1", ["-1 → 1", "-1 → 0", "-1 → -2"]),
        ("0.5", ["0.5 → 1.5", "0.5 → -0.5"]),
        ("a is None", ["a is None → a is not None"]),
        ("a <= b != c", ["a <= b != c → a < b != c", "a <= b != c → a > b != c", "a <= b != c → a <= b == c"]),
        ("a // b", ["a // b → a * b"]),
        ("f(x=a, y=b)", ["f(x=a, y=b) → f(x=b, y=a)"]),
        ("f(*a, b)", []),
        ("zip(a, b, strict=True)", ["zip(a, b, strict=True) → zip(b, a, strict=True)"]),
        ("any(a)", ["any(a) → all(a)"]),
        ("b if a else c", ["a → not a"]),
        ("[b for b in c if b]", ["b → not b"]),
        ("'text' f'{1}'", []),
    ],
)
def test_mutants_of_expression(expression: str, changes: list[str]) -> None:
    assert changes_of(f"x = {expression}\n") == changes


def test_assignment_is_deleted_if_its_name_has_an_earlier_value() -> None:
    source = """
        def f(a):
            b = a
            a = g
            b, c = a
            self.d = b
            del a
        """
    assert changes_of(source) == ["b = a → pass", "a = g → pass", "self.d = b → pass", "del a → pass"]


def test_mutant_has_one_change_and_the_lines_of_its_statement() -> None:
    source = textwrap.dedent(FUNCTION)
    original = ast.unparse(ast.parse(source)).splitlines()
    for mutant in mutants_of("one.py", source):
        changed = ast.unparse(mutated(source, mutant.index)).splitlines()
        assert len(changed) == len(original)
        assert sum(one != other for one, other in zip(changed, original, strict=True)) == 1, mutant.key
        assert mutant.line in [source.splitlines()[number - 1].strip() for number in mutant.lines]
    assert [mutant.in_function for mutant in mutants_of("one.py", source)][:4] == [False, False, False, True]
    with pytest.raises(IndexError, match="fewer than 1000 changes"):
        mutated(source, 999)


def test_equal_changes_get_numbered_keys() -> None:
    keys = [mutant.key for mutant in mutants_of("one.py", "x = (1, 1)\ny = 2\nx = (1, 1)\n")]
    assert keys[:3] == ["one.py | x = (1, 1) | 1 → 2", "one.py | x = (1, 1) | 1 → 0", "one.py | x = (1, 1) | 1 → 2 #2"]
    assert len(set(keys)) == len(keys)


def test_mutants_of_case_have_the_lines_of_their_statements() -> None:
    source = "def f(a):\n    match a:\n        case 1 if a:\n            return a\n        case _:\n            f(a)\n"
    lines = {mutant.change: list(mutant.lines) for mutant in mutants_of("one.py", source)}
    assert lines == {"a → not a": [3], "return a → pass": [4], "f(a) → pass": [6]}
