"""How many values a call gives, or a function takes, by position: at most seven; what is behind them has a name.

Verifies: calls and functions of the three rooms.
Does not verify: kernels in Triton's language and their launches, the native library, and what stands for a function or
a class of another package, whose parameters it has.
"""

import ast
import sys
from collections.abc import Iterator, Set

import pytest

from tests.test_architecture import ROOMS, files_of, module_of, tree_of

BY_POSITION_MAX = 7
# A kernel is launched by position; what stands for a function of another package has that one's parameters.
FOREIGN_SIGNATURES = {"jit", "kernel", "wraps"}


def is_foreign(node: ast.AST, imported: Set[str]) -> bool:
    """Tell whether a function is a kernel or wraps another, or a class is another package's or the native library's."""
    if isinstance(node, ast.ClassDef):
        return node.name == "Native" or any(ast.unparse(base) in imported for base in node.bases)
    decorators = (ast.unparse(each).split("(")[0] for each in getattr(node, "decorator_list", ()))
    return any(each.rpartition(".")[2] in FOREIGN_SIGNATURES for each in decorators)


def nodes_of_ours(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node of a module but those inside of what has a foreign signature."""
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
    """Return how many values a call gives by position, or a function takes, `self` aside.

    A launch, `kernel[grid](...)` or `launch(kernel, grid)(...)`, gives none, nor does a call of the native library.
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
    """Yield what takes or gives too much by position; a `variadic` function takes any number of values of one kind."""
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


def test_at_most_seven_values_are_given_by_position() -> None:
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
def test_what_is_given_by_position_is_counted(source: str, found: list[str]) -> None:
    assert [*given_by_position(ast.parse(source))] == found
