"""At most seven arguments are passed by position in a call or taken by a function.

Verifies: calls and functions of the three packages.
Does not verify: Triton kernels and their launches, the native library, and replacements for a function or class of
another package, which must keep its parameters.
"""

import ast
import sys
from collections.abc import Iterator, Set

import pytest

from tests.test_architecture import ROOMS, files_of, module_of, tree_of

BY_POSITION_MAX = 7
# A kernel is launched by position; a replacement for a function of another package has that function's parameters.
FOREIGN_SIGNATURES = {"jit", "kernel", "wraps"}


def is_foreign(node: ast.AST, imported: Set[str]) -> bool:
    """Return whether a definition has a foreign signature: kernel, wrapper, or native class."""
    if isinstance(node, ast.ClassDef):
        return node.name == "Native" or any(ast.unparse(base) in imported for base in node.bases)
    decorators = (ast.unparse(each).split("(")[0] for each in getattr(node, "decorator_list", ()))
    return any(each.rpartition(".")[2] in FOREIGN_SIGNATURES for each in decorators)


def nodes_of_ours(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node of a module, except nodes inside definitions with a foreign signature."""
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    others = (
        node for node in froms if node.module and node.module.split(".")[0] not in (*ROOMS, *sys.stdlib_module_names)
    )
    imported = {alias.asname or alias.name for node in others for alias in node.names}
    to_read: list[ast.AST] = [tree]
    while to_read:
        node = to_read.pop()
        if not is_foreign(node, imported):
            yield node
            to_read += ast.iter_child_nodes(node)


def num_by_position(node: ast.AST) -> int:
    """Return the number of arguments of a call or function by position, without `self`.

    A launch, `kernel[grid](...)` or `launch(kernel, grid)(...)`, counts 0, and so does a call of the native library.
    """
    match node:
        case ast.Call(func=ast.Name() | ast.Attribute() as called) if "native" not in ast.unparse(called).lower():
            return len(node.args)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            return len(names) - (names[:1] in (["self"], ["cls"]))
        case _:
            return 0


def given_by_position(tree: ast.Module, variadic: Set[str] = frozenset()) -> Iterator[str]:
    """Yield names with too many arguments by position, except names of `variadic` functions."""
    for node in nodes_of_ours(tree):
        if num_by_position(node) > BY_POSITION_MAX:
            name = getattr(node, "name", "lambda") if not isinstance(node, ast.Call) else ast.unparse(node.func)
            if name.rpartition(".")[2] not in variadic:
                yield name


def variadic_functions() -> set[str]:
    return {
        node.name
        for path in files_of(*ROOMS)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.args.vararg is not None
    }


def test_at_most_seven_arguments_by_position() -> None:
    variadic = variadic_functions()
    found = {path: [*given_by_position(tree_of(path), variadic)] for path in files_of(*ROOMS)}
    assert {module_of(path): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Row(1, 2, 3, 4, 5, 6, 7, *rest)", ["Row"]),
        ("Row(1, 2, 3, 4, 5, 6, 7, h=8)", []),
        ("def f(self, a, b, c, d, e, f, g): ...", []),
        ("def f(a, b, c, d, e, f, g, h): ...", ["f"]),
        ("def f(a, b, c, d, e, f, g, *, h): ...", []),
        ("launch(kernel, grid)(1, 2, 3, 4, 5, 6, 7, 8)", []),
        ("@triton.jit\ndef f(a, b, c, d, e, f, g, h):\n    f(1, 2, 3, 4, 5, 6, 7, 8)", []),
        ("self._native.begin(1, 2, 3, 4, 5, 6, 7, 8)", []),
    ],
)
def test_arguments_by_position_are_counted(source: str, found: list[str]) -> None:
    assert [*given_by_position(ast.parse(source))] == found
