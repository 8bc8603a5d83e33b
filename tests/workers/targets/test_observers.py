"""Wrappers of engine functions pass on any arguments, as a new release may add some."""

import ast
from collections.abc import Iterator
from pathlib import Path

TARGETS = Path(__file__).resolve().parents[3] / "workers" / "targets"
# Attributes of our own objects, to which our functions are assigned.
OWN = {"callback", "hidden_states"}
EXAMPLE = """
class Observer:
    def __init__(self, engine):
        engine.schedule, engine.update = self._seen, self._narrow
        wrap_method(engine, "end", self._ended)
        wrap_method(engine, "begin", partial(self._begun, 3))
        engine.callback = self._told

    def _seen(self, plan, *arguments, **options): ...

    def _narrow(self, plan): ...

    def _ended(self, before, *arguments): ...

    def _begun(self, number, before, **options): ...

    def _told(self, point): ...
"""


def test_wrapper_of_an_engine_function_accepts_any_arguments() -> None:
    files = sorted(path for path in TARGETS.rglob("*.py") if "inside" in path.parts)
    assert TARGETS / "vllm" / "inside" / "plans.py" in files
    observers = {path: list(_observers(ast.parse(path.read_text()))) for path in files}
    assert sum(map(len, observers.values())) > 30
    narrow = [f"{path.name}: {each.name}" for path in files for each in observers[path] if not _takes_any(each)]
    assert narrow == []


def test_wrapper_with_fixed_arguments_is_detected() -> None:
    narrow = [each.name for each in _observers(ast.parse(EXAMPLE)) if not _takes_any(each)]
    assert narrow == ["_narrow", "_ended", "_begun"]


def _takes_any(function: ast.FunctionDef) -> bool:
    return function.args.vararg is not None and function.args.kwarg is not None


def _observers(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the methods of a class that it assigns to other objects in place of their own."""
    for own in [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]:
        put = {name for node in ast.walk(own) for name in _put(node)}
        yield from (each for each in own.body if isinstance(each, ast.FunctionDef) and each.name in put)


def _put(node: ast.AST) -> Iterator[str]:
    """Yield the names of methods of `self` that a statement assigns to another object."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "wrap_method":
        given = node.args[2]
        if isinstance(given, ast.Call):
            # `partial` has bound some of its arguments already.
            given = given.args[0]
        yield from _method(given)
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        for place, value in pairs:
            if isinstance(place, ast.Attribute) and ast.unparse(place.value) != "self" and place.attr not in OWN:
                yield from _method(value)


def _method(node: ast.AST) -> Iterator[str]:
    """Yield the name of a private method of `self`, if the expression is one."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" and node.attr.startswith("_"):
        yield node.attr
