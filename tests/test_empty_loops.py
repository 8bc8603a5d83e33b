"""Tests that assert only inside loops: at least one such loop is not empty.

Verifies: if all assertions of a test are in `for` loops, one of them is in loops over values that cannot be empty, as
read from the source: a literal, a range of a number, a constant of a module, a parameter.
Does not verify: loops in helpers; `while`; conditions within a loop that never hold.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import files_of, tree_of

# Functions with a result as empty as the first argument, and as empty as any argument.
KEEPING = {"sorted", "reversed", "enumerate", "list", "tuple", "set", "frozenset", "dict", "iter"}
JOINING = {"zip", "product", "permutations", "combinations"}
# Methods that return a non-empty value for a non-empty object.
VIEWS = {"items", "keys", "values", "tolist"}
EXPECTING = {"raises", "warns"}


def unsure_loops(function: ast.FunctionDef) -> list[str]:
    """Return the iterables of a test's loops if all its assertions are in possibly empty loops."""
    found = list(_assertions(function.body, ()))
    if not found or not all(found):
        return []
    filled = {arg.arg for arg in function.args.args + function.args.kwonlyargs} | _filled(function)
    sure = [all(_is_filled(loop.iter, filled) for loop in loops) for loops in found]
    return [] if any(sure) else sorted({ast.unparse(loop.iter) for loops in found for loop in loops})


def _assertions(body: list[ast.stmt], loops: tuple[ast.For, ...]) -> Iterator[tuple[ast.For, ...]]:
    """Yield the enclosing loops of each assertion in statements."""
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
    """Return whether a call statement is an assertion: `pytest.fail` or an `assert_...` helper."""
    match call:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name == "fail" or name.startswith("assert_")
    return False


def _expects(context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and isinstance(context.func, ast.Attribute) and context.func.attr in EXPECTING


def _filled(function: ast.FunctionDef) -> set[str]:
    """Return the names that a test binds to values that cannot be empty, or to loop items."""
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
    """Return whether a value cannot be empty; `filled` are names of values that cannot be empty."""
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
def test_unsure_loops_are_possibly_empty_loops(body: str, unsure: list[str]) -> None:
    (function,) = ast.parse(f"def test_it(given):\n {body}\n").body
    assert isinstance(function, ast.FunctionDef)
    assert unsure_loops(function) == unsure
