"""List the modules that a trace passes through, from the worker that judges it.

The source is followed by names only: a parameter, what is read from it, what it is assigned to, and attributes of an
object that stores it, as long as they are arguments of functions and classes of the checkout that the module imports or
defines. Calls through a protocol, or by a name that is computed at run time, are not followed.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
ENTRY, PARAMETER = ("Worker", "judge"), "trace"


@dataclass(frozen=True, slots=True)
class Place:
    """A function or a class of a module."""

    module: str
    name: str


@dataclass(slots=True)
class Passage:
    """Follows a parameter through the calls that pass it on; lists the modules that it enters."""

    trees: Mapping[str, ast.Module]
    entered: list[str] = field(default_factory=list)
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    imported: dict[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)

    def enter(self, module: str, holder: ast.ClassDef | None, function: FUNCTION, parameter: str) -> set[str]:
        """Follow a parameter of a function; return the attributes of `self` that store it."""
        key = (module, f"{holder.name if holder else ''}.{function.name}", parameter)
        if key in self.seen:
            return set()
        self.seen.add(key)
        if not self.entered or self.entered[-1] != module:
            self.entered.append(module)
        return self.follow(module, function, {parameter})

    def follow(self, module: str, function: FUNCTION, names: set[str]) -> set[str]:
        """Follow names in a function; return the attributes of `self` that store one of them."""
        stored: set[str] = set()
        for node in ordered(function):
            match node:
                case ast.Assign(targets=targets, value=value) if any(is_read_off(value, names)):
                    for target in targets:
                        names |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)} - {"self"}
                        if isinstance(target, ast.Attribute) and dotted(target).startswith("self."):
                            stored.add(dotted(target))
                            names.add(dotted(target))
                case ast.Call():
                    self.call(module, node, names)
                    if self.entered[-1] != module:
                        self.entered.append(module)
        return stored

    def call(self, module: str, node: ast.Call, names: set[str]) -> None:
        """Follow a call that passes one of the names, if the called function is known."""
        found = self.resolve(module, dotted(node.func))
        if found is None:
            return
        definition = next(
            (each for each in self.trees[found.module].body if getattr(each, "name", None) == found.name), None
        )
        if isinstance(definition, FUNCTION):
            for name in handed(node, definition, names, skip=0):
                self.enter(found.module, None, definition, name)
        elif isinstance(definition, ast.ClassDef):
            methods = [each for each in definition.body if isinstance(each, FUNCTION)]
            for method in methods:
                if method.name == "__init__":
                    for name in handed(node, method, names, skip=1):
                        for attribute in sorted(self.enter(found.module, definition, method, name)):
                            for other in methods:
                                if any(dotted(each) == attribute for each in ast.walk(other)):
                                    self.enter(found.module, definition, other, attribute)

    def resolve(self, module: str, called: str) -> Place | None:
        """Return the function or class of the checkout that a name refers to in a module, or None."""
        first, _, rest = called.partition(".")
        source, name = self.imports_of(module).get(first, (module, first))
        if f"{source}.{name}" in self.trees:
            return Place(f"{source}.{name}", rest) if rest else None
        return Place(source, name) if source in self.trees and not rest else None

    def imports_of(self, module: str) -> Mapping[str, tuple[str, str]]:
        """Return the module and the original name of each name that a module imports."""
        if module not in self.imported:
            self.imported[module] = {
                alias.asname or alias.name: (node.module, alias.name)
                for node in ast.walk(self.trees[module])
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
            }
        return self.imported[module]


def ordered(function: FUNCTION) -> Iterator[ast.AST]:
    """Yield the nodes of a function in source order."""
    nodes = [node for node in ast.walk(function) if hasattr(node, "lineno") and node is not function]
    yield from sorted(nodes, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]


def dotted(node: ast.AST) -> str:
    """Return a chain of attributes as text; "" for any other node."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            before = dotted(value)
            return f"{before}.{attribute}" if before else ""
    return ""


def is_read_off(node: ast.AST, names: set[str]) -> Iterator[bool]:
    """Yield True for each part of an expression that is one of the names, or starts with it."""
    for each in ast.walk(node):
        if dotted(each) in names:
            yield True


def handed(node: ast.Call, function: FUNCTION, names: set[str], skip: int) -> Iterator[str]:
    """Yield the parameters of a called function that receive one of the names."""
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][skip:]
    for parameter, value in zip(parameters, node.args, strict=False):
        if any(is_read_off(value, names)):
            yield parameter
    for keyword in node.keywords:
        if keyword.arg and any(is_read_off(keyword.value, names)):
            yield keyword.arg


def floors(edges: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
    """Return each module's height in the import graph; cyclic imports do not count."""
    found: dict[str, int] = {}

    def floor(module: str, above: tuple[str, ...]) -> int:
        if module not in found:
            below = [floor(each, (*above, module)) for each in edges.get(module, ()) if each not in (*above, module)]
            found[module] = 1 + max(below, default=0)
        return found[module]

    for module in edges:
        floor(module, ())
    return found


def passage(trees: Mapping[str, ast.Module]) -> list[str]:
    """Return the modules through which a trace is passed, in order, with repetitions."""
    walk = Passage(trees)
    for module, tree in sorted(trees.items()):
        for holder in tree.body:
            if isinstance(holder, ast.ClassDef) and holder.name == ENTRY[0]:
                for function in holder.body:
                    if isinstance(function, FUNCTION) and function.name == ENTRY[1]:
                        walk.enter(module, holder, function, PARAMETER)
    return walk.entered


def climbs(entered: Sequence[str], edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the moves of a walk to a module that is higher in the import graph."""
    height = floors(edges)
    return [f"{one} -> {other}" for one, other in pairwise(entered) if height.get(other, 0) > height.get(one, 0)]
