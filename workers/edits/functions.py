"""Functions and blocks of a Python source, and their differences in another version.

A function is named as Python names it (`Scheduler.schedule`, `run.<locals>.inner`); if a file has several functions of
one name, the second has `#2` after its name, and so on. `MODULE` stands for all statements outside functions. A block
is a list of statements that run together unless one of them leaves it: block 0 is the body of the function, and each
branch of an `if`, a loop, a `try`, a `with` or a `match` in it is a further block, in the order of the source.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal, TypeAlias

MODULE = "<module>"
Change: TypeAlias = Literal["changed", "new", "gone"]
FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Function:
    """One function of a source file; `lines` are the lines of the file."""

    name: str
    node: FunctionNode
    lines: Sequence[str]

    @property
    def compiled_by(self) -> str:
        """The decorator that has the function compiled (e.g. by Triton), or "".

        It is empty if the function has none.
        """
        decorators = map(ast.unparse, self.node.decorator_list)
        return next((each for each in decorators if "jit" in each.partition("(")[0].rpartition(".")[2]), "")

    @property
    def is_kernel(self) -> bool:
        """Whether the function is decorated as a Triton kernel."""
        return "triton" in self.compiled_by

    @property
    def first_line(self) -> int:
        """Line number of the first decorator, or of `def`."""
        return min([self.node.lineno, *(each.lineno for each in self.node.decorator_list)])

    @property
    def last_line(self) -> int:
        assert self.node.end_lineno is not None, "it was parsed"
        return self.node.end_lineno

    @property
    def source(self) -> Sequence[str]:
        """The lines of the function's source."""
        return self.lines[self.first_line - 1 : self.last_line]

    @cached_property
    def text(self) -> str:
        """The function's code for comparison: without comments, docstring and nested bodies."""
        return ast.unparse(_Outline().visit(ast.parse(ast.unparse(self.node))))

    @cached_property
    def blocks(self) -> list[list[ast.stmt]]:
        """Statement lists of the function: its body, then bodies of loops and branches."""
        return list(_blocks(self.node.body))

    def block_at(self, line: int, column_max: int | None = None) -> int:
        """Return the number of the innermost block that contains a line.

        Only blocks with an indentation of at most `column_max` are considered.
        """
        found = 0
        for number, block in enumerate(self.blocks):
            last = block[-1].end_lineno or 0
            is_outer = column_max is None or block[0].col_offset <= column_max
            if block[0].lineno <= line <= last and is_outer:
                found = number
        return found


class _Outline(ast.NodeTransformer):
    """Removes docstrings, and the bodies of nested functions, from a function's syntax tree."""

    def __init__(self) -> None:
        self._depth = 0

    def _function(self, node: FunctionNode) -> ast.AST:
        self._depth += 1
        if self._depth > 1:
            node.args, node.returns, node.decorator_list = _NO_ARGUMENTS, None, []
            node.body = [ast.Pass()]
        else:
            node.body = _without_docstring(node.body)
            self.generic_visit(node)
        self._depth -= 1
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = _without_docstring(node.body)
        self.generic_visit(node)
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] or [ast.Pass()] if is_docstring(body[0]) else body


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement consists of a string literal only."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def functions_of(source: str | bytes, tree: ast.Module | None = None) -> dict[str, Function]:
    """Return the functions of a source by qualified name, with methods and nested functions.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    tree = tree if tree is not None else ast.parse(source)
    text = source.decode(errors="replace") if isinstance(source, bytes) else source
    lines = text.splitlines()
    seen: Counter[str] = Counter()
    found = {}
    for name, node in _functions(tree.body, ""):
        seen[name] += 1
        numbered = f"{name}#{seen[name]}" if seen[name] > 1 else name
        found[numbered] = Function(numbered, node, lines)
    return found


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, FunctionNode]]:
    for block in _blocks(body):
        for child in block:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", child
                yield from _functions(child.body, f"{prefix}{child.name}.<locals>.")
            elif isinstance(child, ast.ClassDef):
                yield from _functions(child.body, f"{prefix}{child.name}.")


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    yield body
    for statement in body:
        if not isinstance(statement, _SCOPES):
            for inner in _branches(statement):
                yield from _blocks(inner)


def _branches(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the statement lists directly within a statement such as `if` or `try`, in order."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if name in ("handlers", "cases"):
            yield from (each.body for each in inner or ())
        elif inner:
            yield inner


def _outside(source: str) -> str:
    """Return the code outside all functions, without comments and docstrings."""
    tree = ast.parse(source)
    _remove_functions(tree.body)
    return ast.unparse(tree)


def _remove_functions(body: list[ast.stmt]) -> None:
    for block in _blocks(body):
        kept = [each for each in block if not isinstance(each, FunctionNode) and not is_docstring(each)]
        block[:] = kept or [ast.Pass()]
        for each in block:
            if isinstance(each, ast.ClassDef):
                _remove_functions(each.body)


@dataclass(frozen=True, slots=True)
class Edit:
    """A function that differs between two versions of a file: changed, new or removed.

    `blocks` are the differing blocks, numbered as in the older version. `is_compiled` is true if the newer version of
    the function is compiled from its source or byte code, other than as a Triton kernel.
    """

    file: str
    function: str
    change: Change = "changed"
    blocks: frozenset[int] = frozenset({0})
    is_compiled: bool = False

    @property
    def name(self) -> str:
        """Name of the function as `FILE:FUNCTION`, as it is printed and recorded."""
        return name_of(self.file, self.function)

    def as_a_whole(self) -> "Edit":
        """Return the edit as a change of the whole function body (block 0)."""
        return replace(self, blocks=frozenset({0}))


def name_of(file: str, function: str) -> str:
    """Return a function's name within its package: `FILE:FUNCTION`."""
    return f"{file}:{function}"


def edits_of(file: str, before: str | None, after: str | None) -> list[Edit]:
    """Return the functions that differ between two versions of a file.

    `before` or `after` is None if that version does not have the file. Comments, docstrings and layout do not count. If
    a version is not valid Python, the result is `MODULE` alone.
    """
    try:
        old, new = _parsed(before), _parsed(after)
        outside = [_outside(text or "") for text in (before, after)]
    except (SyntaxError, ValueError, RecursionError):
        return [Edit(file, MODULE)]
    edits = []
    for name in {**old, **new}:
        one, other = old.get(name), new.get(name)
        if one is None:
            edits.append(Edit(file, name, "new", is_compiled=_is_compiled(other)))
        elif other is None:
            edits.append(Edit(file, name, "gone"))
        elif one.source != other.source and one.text != other.text:
            blocks = _changed_blocks(one, other)
            edits.append(Edit(file, name, blocks=blocks, is_compiled=_is_compiled(other)))
    if outside[0] != outside[1]:
        edits.append(Edit(file, MODULE))
    return edits


def _is_compiled(function: Function | None) -> bool:
    return function is not None and bool(function.compiled_by) and not function.is_kernel


def _parsed(source: str | None) -> Mapping[str, Function]:
    return functions_of(source) if source is not None else {}


def _changed_blocks(before: Function, after: Function) -> frozenset[int]:
    """Return the numbers of the older version's blocks that have changed lines.

    A block is affected if one of its lines is changed, or is next to a new line.
    """
    old, new = before.source, after.source
    found: set[int] = set()
    for tag, first, end, new_first, _ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if tag == "insert":
            indent = len(new[new_first]) - len(new[new_first].lstrip())
            around = (before.first_line + first - 1, before.first_line + first)
            found.add(max(before.block_at(line, indent) for line in around))
        else:
            found |= {before.block_at(line) for line in range(before.first_line + first, before.first_line + end)}
    return frozenset(found or {0})
