"""Edits of installed sources: an expression of a named function replaced, or a statement of it left out.

An edit names its function and what stands there, as `ast.unparse` writes it, and must find it exactly once. The edited
text keeps its lines where they were, so that places in findings are those of the installed source.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

# What may be replaced: any expression, and statements of one clause. An expression that is a statement is the former.
_REPLACED = (ast.expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert, ast.Delete)
N = TypeVar("N", bound=ast.AST)


class EditError(Exception):
    """An edit that cannot be made; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one function of a module.

    `find` is an expression, or a statement that is not compound: `put` takes its place. A statement that is left out is
    named by `without`. A compound one is named by its first clause up to the colon; one of these may be `within`, if
    what is looked for is elsewhere in the function too.
    """

    module: str
    function: str
    find: str = ""
    put: str = ""
    without: str = ""
    within: str = ""

    @property
    def file(self) -> str:
        """Path of the module's file below the folder that its package is in."""
        return self.module.replace(".", "/") + ".py"

    @property
    def place(self) -> str:
        """Return the function with its module."""
        return f"{self.module}:{self.function}"


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of a text, by line and column of its first character and of the one behind its last; columns in bytes."""

    start: tuple[int, int]
    stop: tuple[int, int]
    text: str


def edited(source: str, edits: Sequence[Edit]) -> str:
    """Return the text of a module with edits made.

    Raises:
        EditError: one of them does not match exactly once, or what it puts is no Python.
    """
    tree = ast.parse(source)
    spans = sorted((_span(tree, edit) for edit in edits), key=lambda span: span.start, reverse=True)
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    for later, span in zip([None, *spans], spans, strict=False):
        if later is not None and span.stop > later.start:
            raise EditError(f"{edits[0].module}: two edits overlap in line {span.stop[0]}")
        (first, begin), (last, end) = span.start, span.stop
        kept = lines[first - 1][:begin] + span.text.encode() + lines[last - 1][end:]
        lines[first - 1 : last] = [kept]
    text = b"".join(lines).decode()
    assert text.count("\n") == source.count("\n"), "lines stay where they were"
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise EditError(f"{edits[0].place}: what the edits put is no Python in its place ({error})") from error
    return text


def overlay(edits: Sequence[Edit], installed: Path, folder: Path) -> Path:
    """Write a tree of the edited modules, and of their package's first module, into a folder; return the folder.

    `installed` is the folder that the package is installed in.

    Raises:
        EditError: a module is not there, or an edit cannot be made.
    """
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_file[edit.file].append(edit)
        package = edit.module.partition(".")[0]
        first = folder / package / "__init__.py"
        first.parent.mkdir(parents=True, exist_ok=True)
        first.write_bytes((installed / package / "__init__.py").read_bytes())
    for file, of_file in by_file.items():
        path = installed / file
        if not path.is_file():
            raise EditError(f"{of_file[0].module}: there is no such module in {installed}")
        text = edited(path.read_text(encoding="utf-8"), of_file)
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def _span(tree: ast.Module, edit: Edit) -> _Span:
    """Return the text that an edit replaces, and by what."""
    body: Sequence[ast.stmt] = _function(tree, edit).body
    if edit.within:
        outer = _only([each for each in _statements(body) if _head(each) == edit.within], edit, edit.within)
        body = getattr(outer, "body", [])
    found: list[ast.stmt | ast.expr] = []
    if edit.without:
        found += [each for each in _statements(body) if _head(each) == edit.without]
    else:
        nodes = (node for statement in body for node in ast.walk(statement))
        found += [node for node in nodes if isinstance(node, _REPLACED) and ast.unparse(node) == edit.find]
    node = _only(found, edit, edit.without or edit.find)
    last, end = node.end_lineno, node.end_col_offset
    assert last is not None, "a parsed node has an end"
    assert end is not None, "a parsed node has an end"
    return _Span((node.lineno, node.col_offset), (last, end), _text(node, edit, last - node.lineno))


def _only(found: Sequence[N], edit: Edit, wanted: str) -> N:
    if len(found) != 1:
        raise EditError(f"{edit.place}: {wanted!r} is there {len(found)} times, wanted once")
    return found[0]


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    return (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.stmt))


def _text(node: ast.stmt | ast.expr, edit: Edit, num_lines: int) -> str:
    """Return what stands in a node's place, with as many line breaks as it had."""
    breaks = "\n" * num_lines
    if edit.without:
        return f"pass{breaks}"
    return f"{edit.put}{breaks}" if isinstance(node, ast.stmt) else f"({edit.put}{breaks})"


def _head(statement: ast.stmt) -> str:
    """Return a statement; of a compound one its first clause without the colon."""
    if not hasattr(statement, "body"):
        return ast.unparse(statement)
    return ast.unparse(statement).partition("\n")[0].removesuffix(":")


def _function(tree: ast.Module, edit: Edit) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Return the function that an edit names, of its qualified name the only one."""
    found = [node for name, node in _functions(tree, "") if name == edit.function]
    if len(found) != 1:
        raise EditError(f"{edit.place}: {len(found)} functions of that name, wanted one")
    return found[0]


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions of a module or class, and those inside them, by qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)
