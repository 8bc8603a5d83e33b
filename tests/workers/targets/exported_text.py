"""Checks of the text of an exported test: imports, names, line lengths."""

import ast
import builtins
import sys

from workers.targets.child.export.text import WIDTH

OTHERS = {"torch", "pytest", "safetensors", "vllm", "sglang"}


def problems_of(text: str) -> list[str]:
    """Return the problems of an exported test, e.g. a forbidden import or an unused name."""
    tree = ast.parse(text)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    tests = {each for each in defined if each.startswith("test_")}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    bound = {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    foreign = sorted(imported(tree) - {*sys.stdlib_module_names} - OTHERS)
    return [
        *(f"imports {name}" for name in foreign),
        *(f"does not define {name}" for name in sorted(used - bound_in(tree))),
        *(f"does not use {name}" for name in sorted((defined - tests | bound) - used)),
        *(f"long line: {line}" for line in text.splitlines() if len(line) > WIDTH),
        *([] if len(tests) == 1 else [f"has {len(tests)} tests"]),
    ]


def bound_in(tree: ast.Module) -> set[str]:
    """Return all names that a module defines anywhere, and Python's builtins."""
    found = {*dir(builtins), "__name__"}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(each.asname or each.name).partition(".")[0] for each in names}
    return found


def imported(tree: ast.Module) -> set[str]:
    """Return the packages that a module imports."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=module):
                found.add(str(module))
    return {name.partition(".")[0] for name in found}
