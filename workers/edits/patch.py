"""Edits as a unified diff that a maintainer can apply to the installed sources.

The patched text and the edited syntax tree must be the same program; `patched_source` asserts that.
"""

import ast
import difflib
import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path

from workers.edits.edit import Edit, EditError, Span, edited_tree, found, replace_spans, span_of, statements_of


def patched_source(source: str, edits: Sequence[Edit]) -> str:
    """Return a module's source after all edits, with inserted statements on lines of their own.

    Raises:
        EditError: an edit cannot be made.
    """
    tree = ast.parse(source)
    by_start: dict[tuple[int, int], list[Span]] = {}
    for edit in edits:
        span = _span(tree, source, edit)
        by_start.setdefault(span.start, []).append(span)
    text = replace_spans(source, [_joined(spans, edits[0].at) for spans in by_start.values()], edits[0].at)
    if _bare(ast.parse(text)) != _bare(edited_tree(source, edits)):
        raise EditError(f"{edits[0].at}: the patch is not the same program as the edits; write them one after another")
    return text


def diff(file: str, source: str, edits: Sequence[Edit]) -> str:
    """Return the unified diff of one file's edits, with the prefixes `a/` and `b/`.

    Raises:
        EditError: an edit cannot be made.
    """
    before, after = source.splitlines(keepends=True), patched_source(source, edits).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"a/{file}", f"b/{file}"))


def patch(edits: Sequence[Edit], root: Path) -> str:
    """Return the unified diff of all edits of a fix, for the files below `root`.

    Raises:
        EditError: an edit cannot be made, or a file is missing below `root`.
    """
    files = dict.fromkeys(edit.file for edit in edits)
    missing = [file for file in files if not (root / file).is_file()]
    if missing:
        raise EditError(f"there is no {missing[0]} in {root}")
    by_file = {file: [edit for edit in edits if edit.file == file] for file in files}
    return "".join(diff(file, (root / file).read_text(encoding="utf-8"), group) for file, group in by_file.items())


def _span(tree: ast.Module, source: str, edit: Edit) -> Span:
    node = found(tree, edit)
    if edit.find:
        return span_of(node, edit.put)
    whole = span_of(node, "")
    indent = " " * node.col_offset
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    code = textwrap.indent(textwrap.dedent(edit.code).strip("\n"), indent)
    # A definition is set off by an empty line.
    gap = "\n" if any(hasattr(each, "body") and hasattr(each, "name") for each in statements_of(edit)) else ""
    if edit.before:
        above = _first_comment(source.splitlines(), first, indent)
        return Span((above, 0), (above, 0), f"{code}\n{gap}")
    if edit.after:
        return Span(whole.stop, whole.stop, f"\n{gap}{code}")
    if edit.instead:
        return Span((first, 0), whole.stop, code)
    is_alone = _is_only_statement(tree, node)
    if is_alone:
        return Span(whole.start, whole.stop, "pass")
    last = source.splitlines(keepends=True)[whole.stop[0] - 1]
    return Span((first, 0), (whole.stop[0], len(last.encode())), "")


def _first_comment(lines: Sequence[str], line: int, indent: str) -> int:
    """Return the first line of the comment that ends right above `line`; `line` without one."""
    while line > 1 and lines[line - 2].startswith(f"{indent}#"):
        line -= 1
    return line


def _joined(spans: Sequence[Span], where: str) -> Span:
    """Return one span that makes several insertions at the same position, in order."""
    if len(spans) > 1 and any(span.start != span.stop for span in spans):
        raise EditError(f"{where}: two edits overlap in line {spans[0].start[0]}")
    return Span(spans[0].start, spans[0].stop, "".join(span.text for span in spans))


def _is_only_statement(tree: ast.Module, node: ast.AST) -> bool:
    bodies = (getattr(each, name, None) for each in ast.walk(tree) for name in ("body", "orelse", "finalbody"))
    return any(isinstance(body, list) and len(body) == 1 and body[0] is node for body in bodies)


def _bare(tree: ast.Module) -> str:
    """Return a text of a program that ignores positions and `pass`, for comparison."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                node.value = ast.Constant(inspect.cleandoc(text))
            case _:
                pass
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, [each for each in body if not isinstance(each, ast.Pass)])
    return ast.dump(tree)
