"""Count how often signatures of device ops are repeated: in twins, arguments and launches.

An op is a field of `Parts` with the name of a function in `workers/kernels/`. Its parameters are listed by each such
function, by its argument class, and by each launch in the engine: `launch(parts.op, ...)`, the call of the class, or
`bound(class, view, ...)` and `arguments_of(class, ...)`, which count their keywords. The longest list of an op is
necessary; all other lists repeat it. A list with one entry, the argument object, does not count. Kernel bodies are not
counted, because a kernel takes pointers.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
KERNELS, ENGINE = "workers.kernels.", "workers.engine."


def op_name(argument_class: str) -> str:
    """Return the name of the op that takes arguments of a class."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", argument_class).lower()


def ops_of(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the names of the ops of an engine."""
    kernels = {
        node.name
        for module, tree in trees.items()
        if module.startswith(KERNELS)
        for node in tree.body
        if isinstance(node, FUNCTION)
    }
    fields = {
        entry.target.id
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Parts"
        for entry in node.body
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
    }
    return kernels & fields


def declared_by(tree: ast.Module, ops: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the ops with parameters listed in a module of kernels, and the number of parameters."""
    for node in tree.body:
        if isinstance(node, FUNCTION) and node.name in ops:
            yield node.name, len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
        elif isinstance(node, ast.ClassDef) and op_name(node.name) in ops:
            yield op_name(node.name), sum(isinstance(entry, ast.AnnAssign) for entry in node.body)


def launched_by(tree: ast.Module, ops: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the ops that a module of the engine launches, and the number of arguments."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=given, keywords=named) if (
                op_name(name) in ops and name[0].isupper()
            ):
                yield op_name(name), len(given) + len(named)
            case ast.Call(
                func=ast.Attribute(attr="bound"),
                args=[ast.Name(id=name) | ast.Attribute(attr=name), *_],
                keywords=named,
            ) if op_name(name) in ops:
                yield op_name(name), len(named)
            case ast.Call(
                func=ast.Name(id="arguments_of"),
                args=[ast.Name(id=name) | ast.Attribute(attr=name), *given],
                keywords=named,
            ) if op_name(name) in ops:
                yield op_name(name), len(given) + len(named)
            case ast.Call(
                func=ast.Name(id="launch") | ast.Attribute(attr="launch"), args=[ast.Attribute(attr=op), *given]
            ):
                if op in ops:
                    yield op, len(given)


def listings(trees: Mapping[str, ast.Module]) -> Mapping[str, list[tuple[str, int]]]:
    """Return the modules that list an op's parameters or arguments, with the numbers, by op."""
    ops = ops_of(trees)
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for module, tree in trees.items():
        lists = declared_by if module.startswith(KERNELS) else launched_by if module.startswith(ENGINE) else None
        for op, count in lists(tree, ops) if lists else ():
            if count > 1:
                found[op].append((module, count))
    return found


def repeated(trees: Mapping[str, ast.Module]) -> list[str]:
    """Return a line for each op parameter that several modules list."""
    lines = []
    for op, lists in sorted(listings(trees).items()):
        longest = max(lists, key=lambda each: each[1])
        again = [each for each in lists if each is not longest]
        lines += [f"{op}: {module}" for module, count in again for _ in range(count)]
    return lines
