"""Tests that assert within loops alone: what they go through is there.

Verifies: of a test whose assertions all stand in `for` loops, that one of them is in loops that go through something
that cannot be empty, as read from the source: a literal, a range of a number, a constant of a module, a parameter.
Does not verify: loops in helpers; `while`; conditions within a loop that never hold.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import files_of, tree_of

# What is as empty as its first argument is, and what is as empty as any of its arguments.
KEEPING = {"sorted", "reversed", "enumerate", "list", "tuple", "set", "frozenset", "dict", "iter"}
JOINING = {"zip", "product", "permutations", "combinations"}
# Methods of what is not empty that give something that is not.
VIEWS = {"items", "keys", "values", "tolist"}
EXPECTING = {"raises", "warns"}


def unsure_loops(function: ast.FunctionDef) -> list[str]:
    """Return what the loops of a test go through that all its assertions are in, if each of them may be empty."""
    found = list(_assertions(function.body, ()))
    if not found or not all(found):
        return []
    filled = {arg.arg for arg in function.args.args + function.args.kwonlyargs} | _filled(function)
    sure = [all(_is_filled(loop.iter, filled) for loop in loops) for loops in found]
    return [] if any(sure) else sorted({ast.unparse(loop.iter) for loops in found for loop in loops})


def _assertions(body: list[ast.stmt], loops: tuple[ast.For, ...]) -> Iterator[tuple[ast.For, ...]]:
    """Yield, for each assertion in statements, the loops around it."""
    for each in body:
        match each:
            case ast.Assert() | ast.Expr(value=ast.Call()) if isinstance(each, ast.Assert) or _asserts(each.value):
                yield loops
            case ast.With(items=items) if any(_expects(item.context_expr) for item in items):
                yield loops
            case ast.For():
                yield from _assertions(each.body, (*loops, each))
            case ast.With() | ast.If() | ast.Try():
                yield from _assertions(each.body, loops)


def _asserts(call: ast.expr) -> bool:
    """Whether a call that is a statement fails of itself: `pytest.fail`, `np.testing.assert_array_equal`, a helper."""
    match call:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name == "fail" or name.startswith("assert_")
    return False


def _expects(context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and isinstance(context.func, ast.Attribute) and context.func.attr in EXPECTING


def _filled(function: ast.FunctionDef) -> set[str]:
    """Return the names that a test gives something that cannot be empty, or takes from a loop through such."""
    filled: set[str] = set()
    for node in ast.walk(function):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if _is_filled(value, filled):
                filled.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=False)
                filled |= {name.id for name, value in pairs if isinstance(name, ast.Name) and _is_filled(value, filled)}
    return filled


def _is_filled(value: ast.expr, filled: set[str]) -> bool:
    """Whether a value cannot be empty, by its source; `filled` are the names of others that cannot."""
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(not isinstance(part, ast.Starred) or _is_filled(part.value, filled) for part in parts)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Constant(value=constant):
            return bool(constant)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper() or name in filled
        case ast.Subscript(value=of, slice=ast.Slice(lower=None)):
            return _is_filled(of, filled)
        case ast.BinOp(left=left, op=ast.Add() | ast.BitOr(), right=right):
            return _is_filled(left, filled) or _is_filled(right, filled)
        case ast.Call(func=ast.Name(id="range"), args=[*_, ast.Constant(value=int(end))]):
            return end > 0
        case ast.Call(func=ast.Name(id="range"), args=[first, *rest]):
            ends = rest[:1] or [first]
            return all(_is_filled(end, filled) for end in ends)
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]) if name in KEEPING | JOINING:
            return all(_is_filled(each, filled) for each in (first, *(rest if name in JOINING else ())))
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in VIEWS:
            return _is_filled(of, filled)
    return False


def functions_of(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def test_no_test_asserts_only_in_loops_that_may_be_empty() -> None:
    read = [(path, function) for path in files_of("tests") for function in functions_of(path)]
    assert len(read) > 1000
    unsure = {f"{path.name}:{function.lineno}": unsure_loops(function) for path, function in read}
    assert {where: loops for where, loops in unsure.items() if loops} == {}


@pytest.mark.parametrize(
    ("body", "unsure"),
    [
        ("for x in xs():\n  assert x", ["xs()"]),
        ("for x in xs():\n  with pytest.raises(ValueError):\n   x()", ["xs()"]),
        ("for x in XS:\n  for y in x:\n   assert y", ["XS", "x"]),
        ("for x in [*xs()]:\n  assert x", ["[*xs()]"]),
        ("xs = [x for x in ys()]\n for x in xs:\n  assert x", ["xs"]),
        ("for x in range(n()):\n  assert x", ["range(n())"]),
        ("xs = ys()\n assert xs\n for x in xs:\n  assert x", []),
        ("for x in XS:\n  assert x", []),
        ("for x in (1, *xs()):\n  assert x", []),
        ("for i, x in enumerate(sorted(given)):\n  assert x", []),
        ("for i in range(3):\n  assert i\n  for x in xs():\n   assert x", []),
        ("for i in xs():\n  seen.append(i)", []),
    ],
)
def test_loops_that_may_be_empty_are_told_from_those_that_are_not(body: str, unsure: list[str]) -> None:
    (function,) = ast.parse(f"def test_it(given):\n {body}\n").body
    assert isinstance(function, ast.FunctionDef)
    assert unsure_loops(function) == unsure
