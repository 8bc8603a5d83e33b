"""The finding that `run` prints for an engine without one order line (stream wait ...)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from benchmarks.power.order_lines.runs import Line
from scenarios.trace import Trace
from workers.record.evidence import MissingOrder, Site
from workers.record.verdict import Judgement, detected_race
from workers.record.words import finding_lines
from workers.run.worker import Worker
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

# Which source location of the statement a race names: its function or its file; `no` for neither, or without a race.
Named: TypeAlias = Literal["function", "file", "no"]
_BEGIN = "missing order: nothing orders ", "nothing orders "


class Printed(NamedTuple):
    """The finding that `run` prints: kind of verdict, whether a race is first, named line.

    `race` names the two functions with unordered accesses, or is empty.
    """

    kind: str
    leads: bool
    named: Named
    race: str

    @property
    def is_as_expected(self) -> bool:
        """Return whether the finding starts with a race that names the statement's function or file."""
        return self.leads and self.named != "no"


def without_statement(text: str, line: int) -> str | None:
    """Return a source without the statement on a line; None unless it is a single call.

    All other lines keep their numbers.
    """
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and _is_in(node, line)]
    if len(found) != 1 or not isinstance(found[0].value, ast.Call):
        return None
    (statement,) = found
    assert statement.end_lineno is not None, "the statement was parsed"
    lines = text.splitlines(keepends=True)
    blank = ["\n"] * (statement.end_lineno - statement.lineno)
    lines[statement.lineno - 1 : statement.end_lineno] = [" " * statement.col_offset + "pass\n", *blank]
    return "".join(lines)


def _is_in(node: ast.Expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def overlay(line: Line, installed: Path, folder: Path) -> bool:
    """Write a module without the statement on a line; return False if that is impossible.

    `installed` is the folder that contains the package.
    """
    package, path = line.file.partition("/")[0], installed / line.file
    text = without_statement(path.read_text(encoding="utf-8"), line.line) if path.is_file() else None
    if text is None:
        return False
    for file, content in (
        (f"{package}/__init__.py", (installed / package / "__init__.py").read_text()),
        (line.file, text),
    ):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    return True


def printed(line: Line, trace: Trace, config: RunConfig, folder: Path) -> Printed:
    """Return the finding that `run` prints for a trace on an overlay without one order line.

    The finding is not confirmed with interpreted kernels: that takes minutes, and does not change races.
    """
    with target_kind(config.engine).overlaid(folder, config) as laid_over:
        return printed_of(Worker("later").judge(trace, True, laid_over), line)


def printed_of(judgement: Judgement, line: Line) -> Printed:
    """Return the finding that `run` prints for a judgement on an engine without a line."""
    verdict = judgement.verdict
    order, lines = detected_race(verdict), finding_lines(verdict)
    race = f"{order.first.actor} and {order.second.actor}" if order is not None else ""
    leads = bool(lines) and lines[0].startswith(_BEGIN)
    return Printed(verdict.kind, leads, named(order, line) if order is not None else "no", race)


def named(order: MissingOrder, line: Line) -> Named:
    """Return whether a race names the function or the file of an order line."""
    sites = [site for site in _sites(order) if site.file == line.file]
    if any(site.function.rpartition(".")[2] == line.function for site in sites):
        return "function"
    return "file" if sites else "no"


def _sites(order: MissingOrder) -> Iterator[Site]:
    for access in (order.first, order.second):
        yield from (site for site in (access.site, *access.callers) if site is not None)
