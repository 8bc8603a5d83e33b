"""One edit of a function's source, and how edits change a module.

An edit names a function and one part of it, in the notation of `ast.unparse`, and must match exactly once. No line of
the module moves: inserted statements exist only in the compiled code, at the line of the statement next to them, so the
source locations in a finding are valid for the installed source.
"""

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar

from pydantic import Field, model_validator

from scenarios.spec import Value

# Fields of a syntax tree that hold statements.
_BODIES = ("body", "orelse", "finalbody")
Part: TypeAlias = ast.stmt | ast.expr | ast.arg | ast.keyword
N = TypeVar("N", bound=ast.AST)


class EditError(Exception):
    """An edit cannot be applied; the message names the function and says why."""


class Edit(Value):
    """One source edit: replaces, removes or inserts code in a function, class or module.

    `at` is `module:qualified.name`, or `module` for the module itself.

    Exactly one of:
    - `find` and `put`: an expression, a parameter, a keyword argument or a statement without a body, and the text that
      replaces it, on one line;
    - `without`: a statement to remove;
    - `before`, `after` or `instead` and `code`: a statement, and the statements to insert next to it or instead of it.

    A statement with a body is named by its first clause up to the colon, e.g. `for row in rows`. `within` names such a
    statement around the part, if the part alone matches more than once.
    """

    at: Annotated[str, Field(pattern=r"^\w+(\.\w+)*(:\w+(\.\w+)*)?$")]
    find: str = ""
    put: str = ""
    without: str = ""
    before: str = ""
    after: str = ""
    instead: str = ""
    code: str = ""
    within: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> "Edit":
        ways = [self.find, self.without, self.before, self.after, self.instead]
        if sum(map(bool, ways)) != 1:
            raise ValueError("an edit has exactly one of find, without, before, after, instead")
        if bool(self.find) != bool(self.put) or bool(self.anchor) != bool(self.code):
            raise ValueError("find needs put; before, after and instead need code; the others have neither")
        return self

    @property
    def anchor(self) -> str:
        """The statement before, after or instead of which `code` is inserted; "" for other edits."""
        return self.before or self.after or self.instead

    @property
    def module(self) -> str:
        return self.at.partition(":")[0]

    @property
    def function(self) -> str:
        return self.at.partition(":")[2]

    @property
    def file(self) -> str:
        """Path of the edited file, relative to the folder that contains the package."""
        return self.module.replace(".", "/") + ".py"


@dataclass(frozen=True, slots=True)
class Span:
    """Range of a text: `start` to `stop` (line from 1, column in bytes), and its replacement."""

    start: tuple[int, int]
    stop: tuple[int, int]
    text: str


def apply_replacements(source: str, edits: Sequence[Edit]) -> str:
    """Return a module's source after its replacements and removals, without moving any line.

    Edits that insert statements are left out.

    Raises:
        EditError: an edit does not match exactly once, two overlap, or the result is not valid Python.
    """
    tree = ast.parse(source)
    parts = [(found(tree, edit), edit) for edit in edits if not edit.anchor]
    spans = [span_of(part, _kept_lines(part, edit)) for part, edit in parts]
    text = replace_spans(source, spans, edits[0].at if edits else "")
    assert text.count("\n") == source.count("\n"), "no line moves"
    return text


def edited_tree(source: str, edits: Sequence[Edit]) -> ast.Module:
    """Return a module's syntax tree after all edits, with the original line numbers.

    Raises:
        EditError: as `apply_replacements`, or statements are inserted into a Triton kernel, which Triton compiles from
            its text.
    """
    original, tree = ast.parse(source), _parsed(apply_replacements(source, edits), edits)
    anchored = [edit for edit in edits if edit.anchor]
    anchors = [_anchor(original, tree, edit) for edit in anchored]
    # Insertions next to one statement keep the order of the edits: those after it are made last first.
    order = [number for number, edit in enumerate(anchored) if not edit.after]
    order += [number for number, edit in reversed([*enumerate(anchored)]) if edit.after]
    for number in order:
        _insert(anchors[number], anchored[number])
    return tree


def statements_of(edit: Edit) -> list[ast.stmt]:
    """Return the parsed statements of an edit's `code`.

    Raises:
        EditError: its code is not valid Python.
    """
    return _parsed(textwrap.dedent(edit.code), [edit]).body


def found(tree: ast.Module, edit: Edit) -> Part:
    """Return the statement, expression or parameter of a module that an edit names.

    Raises:
        EditError: nothing matches, or more than one part.
    """
    scope = scope_of(tree, edit)
    body: Sequence[ast.stmt] = scope.body
    parameters = [scope.args] if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else []
    if edit.within:
        outer = _only([each for each in _statements(body) if head_of(each) == edit.within], edit, edit.within)
        body = getattr(outer, "body", [])
    statement = edit.without or edit.anchor
    if statement:
        return _only([each for each in _statements(body) if head_of(each) == statement], edit, statement)
    nodes = (node for outer in (*(parameters if not edit.within else ()), *body) for node in ast.walk(outer))
    types = _kind_of(edit)
    matches = [node for node in nodes if isinstance(node, types) and ast.unparse(node) == edit.find]
    return _only(matches, edit, edit.find)


def _kind_of(edit: Edit) -> tuple[type[Part], ...]:
    """Return the types of syntax nodes that may match an edit's `find`.

    Without this filter, `ast.unparse` of every node would take seconds.
    """
    try:
        statement = ast.parse(edit.find).body[0]
    except SyntaxError:
        return (ast.arg, ast.keyword)
    if isinstance(statement, ast.Expr):
        return (type(statement.value), ast.arg)
    return (type(statement), ast.arg, ast.keyword)


def scope_of(tree: ast.Module, edit: Edit) -> ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef:
    """Return the function or class that an edit names, or the module if it names none.

    Raises:
        EditError: the module has none of that name, or several.
    """
    if not edit.function:
        return tree
    scopes = [node for name, node in _scopes(tree, "") if name == edit.function]
    if len(scopes) != 1:
        raise EditError(f"{edit.at}: the module has {len(scopes)} functions of that name; expected one")
    return scopes[0]


def head_of(statement: ast.stmt) -> str:
    """Return a statement's text; for a compound statement its header without the colon."""
    if not hasattr(statement, "body"):
        return ast.unparse(statement)
    fields = dict(ast.iter_fields(statement))
    fields |= {name: [] for name in ("decorator_list", "orelse", "finalbody", "handlers") if name in fields}
    bare = type(statement)(**{**fields, "body": [ast.Pass()]})
    return ast.unparse(ast.fix_missing_locations(bare)).partition("\n")[0].removesuffix(":")


def span_of(node: Part, text: str) -> Span:
    """Return the range of a syntax node, with the text to replace it by."""
    assert node.end_lineno is not None, "a parsed node has an end"
    assert node.end_col_offset is not None, "a parsed node has an end"
    return Span((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


def replace_spans(source: str, spans: Sequence[Span], where: str) -> str:
    """Return a text after the replacement of ranges; `where` names the text in messages.

    Raises:
        EditError: two spans overlap, or the result is not valid Python.
    """
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    ordered = sorted(spans, key=lambda span: span.start, reverse=True)
    for later, span in zip([None, *ordered], ordered, strict=False):
        if later is not None and span.stop > later.start:
            raise EditError(f"{where}: two edits overlap in line {span.stop[0]}")
        (first, begin), (last, end) = span.start, span.stop
        lines[first - 1 : last] = [lines[first - 1][:begin] + span.text.encode() + lines[last - 1][end:]]
    text = b"".join(lines).decode()
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise EditError(f"{where}: the edited text is not valid Python ({error})") from error
    return text


def _kept_lines(node: Part, edit: Edit) -> str:
    """Return the replacement of a node, padded to the node's number of lines."""
    breaks = "\n" * ((node.end_lineno or node.lineno) - node.lineno)
    if edit.without:
        return f"pass{breaks}"
    return f"({edit.put}{breaks})" if isinstance(node, ast.expr) else f"{edit.put}{breaks}"


@dataclass(frozen=True, slots=True)
class _Anchor:
    """Where an edit inserts code: statements of the edited tree, and the list that has them."""

    holder: list[ast.stmt]
    statements: tuple[ast.stmt, ...]
    line: int
    end_line: int


def _anchor(original: ast.Module, tree: ast.Module, edit: Edit) -> _Anchor:
    """Find the statement of the edited tree before or after which an edit inserts code.

    It is found by its line number, which is the same in the original.
    """
    anchor = found(original, edit)
    assert isinstance(anchor, ast.stmt), "an anchor is a statement"
    if any("jit" in ast.unparse(each) for each in getattr(scope_of(original, edit), "decorator_list", ())):
        raise EditError(f"{edit.at}: statements cannot be inserted into a Triton kernel; use find and put")
    for node in ast.walk(tree):
        for name in _BODIES:
            body: list[ast.stmt] | None = getattr(node, name, None)
            here = [each for each in body if each.lineno == anchor.lineno] if isinstance(body, list) else []
            if here and isinstance(body, list):
                return _Anchor(body, tuple(here), anchor.lineno, anchor.end_lineno or anchor.lineno)
    raise EditError(f"{edit.at}: another edit has replaced the statement {edit.anchor!r}")


def _insert(anchor: _Anchor, edit: Edit) -> None:
    """Insert an edit's statements before or after the found statement, or instead of it."""
    new = statements_of(edit)
    line = anchor.end_line if edit.after else anchor.line
    for node in (node for statement in new for node in ast.walk(statement) if hasattr(node, "lineno")):
        node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    holder, first, last = anchor.holder, anchor.statements[0], anchor.statements[-1]
    if not any(each is first for each in holder):
        raise EditError(f"{edit.at}: another edit has replaced the statement {edit.anchor!r}")
    start, stop = ([each is end for each in holder].index(True) for end in (first, last))
    if edit.before:
        holder[start:start] = new
    elif edit.after:
        holder[stop + 1 : stop + 1] = new
    else:
        holder[start : stop + 1] = new


def _parsed(text: str, edits: Sequence[Edit]) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise EditError(f"{edits[0].at}: the code of an edit is not valid Python ({error})") from error


def _only(matches: Sequence[N], edit: Edit, text: str) -> N:
    if len(matches) != 1:
        raise EditError(f"{edit.at}: {text!r} matches {len(matches)} times; expected once")
    return matches[0]


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    return (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.stmt))


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield the functions and classes within a node, with qualified names."""
    bodies = (getattr(node, name, ()) for name in (*_BODIES, "handlers", "cases"))
    for child in (child for body in bodies for child in body):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
            yield from _scopes(child, f"{prefix}{child.name}.")
        else:
            yield from _scopes(child, prefix)
