"""Selects the helper functions and imports that an exported test needs."""

import ast
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workers.targets.child.export.text import WIDTH

MODELS = Path(__file__).parent / "driver" / "models.py"
# Comments for this project's linters, which are removed from the driver's source.
_REMARKS = ("  # type: ignore[", "  # noqa: ")


@dataclass(frozen=True, slots=True)
class Part:
    """One definition of a driver file (function, class, constant): its source and used names."""

    name: str
    source: str
    uses: frozenset[str]
    place: tuple[int, int]
    is_constant: bool


def source_of(files: tuple[Path, ...], names: Iterable[str], package: str) -> tuple[list[str], list[str]]:
    """Return imports and helper functions for an exported test, as Python source.

    The test calls `names`, which the shared driver or the engine's driver `files` define; their dependencies are
    included. Constants come first, then functions in the order of their files. If several files define a name, the last
    definition is taken. Imports of the engine's `package` come last.
    """
    files = (MODELS, *files)
    parts, imports = _parts(files), _imports(files)
    needed, pending = set[str](), [*names]
    while pending:
        name = pending.pop()
        if name in parts and name not in needed:
            needed.add(name)
            pending += parts[name].uses
    taken = sorted((parts[name] for name in needed), key=lambda part: (not part.is_constant, part.place))
    used = {*names, *(name for part in taken for name in part.uses)}
    imported = {name: imports[name] for name in used if name in imports} | {"os": ("os", "")}
    constants = [part.source for part in taken if part.is_constant]
    functions = [part.source for part in taken if not part.is_constant]
    return _import_lines(imported, package), ["\n".join(constants), *functions]


@cache
def _parts(files: tuple[Path, ...]) -> Mapping[str, Part]:
    found: dict[str, Part] = {}
    for order, file in enumerate(files):
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            names = _defined(node)
            if not names:
                continue
            assert node.end_lineno is not None, "it comes from a file"
            source = "\n".join(map(_without_remark, lines[_start(node, lines) : node.end_lineno]))
            uses = frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name)) - set(names)
            is_constant = isinstance(node, ast.Assign)
            found |= {name: Part(name, source, uses, (order, node.lineno), is_constant) for name in names}
    return found


def _without_remark(line: str) -> str:
    for remark in _REMARKS:
        line = line.partition(remark)[0]
    return line


def _start(node: ast.stmt, lines: list[str]) -> int:
    """Return the index of a definition's first line, including decorators and comments above it."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return first


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
    return []


@cache
def _imports(files: tuple[Path, ...]) -> Mapping[str, tuple[str, str]]:
    """Map each imported name to its module and its name in the module ("" for `import module`)."""
    found: dict[str, tuple[str, str]] = {}
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            match node:
                case ast.Import(names=names):
                    found |= {each.name: (each.name, "") for each in names}
                case ast.ImportFrom(module=str(module), names=names):
                    found |= {each.name: (module, each.name) for each in names}
    return found


def _import_lines(imports: Mapping[str, tuple[str, str]], package: str) -> list[str]:
    """Return import statements in groups, separated by an empty line.

    The groups are the standard library, other packages, and `package`.
    """
    groups: dict[int, dict[str, set[str]]] = {}
    for module, name in imports.values():
        groups.setdefault(_group(module, package), {}).setdefault(module, set()).add(name)
    blocks = []
    for _, modules in sorted(groups.items()):
        plain = sorted(f"import {module}" for module, names in modules.items() if names == {""})
        named = [_from(module, sorted(names)) for module, names in sorted(modules.items()) if names != {""}]
        blocks.append("\n".join([*plain, *named]))
    return blocks


def _from(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {name},\n" for name in names)
    return f"from {module} import (\n{inner})"


def _group(module: str, package: str) -> int:
    root = module.partition(".")[0]
    return 2 if root == package else 0 if root in sys.stdlib_module_names else 1
