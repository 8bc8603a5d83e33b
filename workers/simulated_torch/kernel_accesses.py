"""Find which arguments a Triton kernel reads and writes, from its source.

Loads and stores follow from how the kernel computes its pointers. Branches and masks are ignored, so the result may
contain more than a launch accesses, never less. A pointer that is itself loaded from memory is an access through the
argument that it was loaded from.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

_LOADS, _STORES = ("load",), ("store",)
_ATOMIC = "atomic_"
_POINTER_TYPE = "pointer_type"
_JIT = "triton.jit"


class Root(NamedTuple):
    """Origin of a pointer: a kernel argument or, with `is_loaded`, memory that it points to."""

    argument: str
    is_loaded: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """Possible values of an expression: pointers, or integers that are cast to pointers."""

    pointers: frozenset[Root] = frozenset()
    loaded: frozenset[Root] = frozenset()

    def __or__(self, other: "Value") -> "Value":
        return Value(self.pointers | other.pointers, self.loaded | other.loaded)


_NOTHING = Value()


@dataclass(frozen=True, slots=True)
class Accesses:
    """Arguments that a function reads and writes, and the pointers that it returns."""

    reads: frozenset[Root]
    writes: frozenset[Root]
    returned: Value


class KernelError(Exception):
    """The accesses of a kernel cannot be derived, or it accessed other memory than derived."""


@cache
def accesses_of(function: Any) -> Accesses:
    """Return what a kernel or device function, given as a Python function, reads and writes.

    Raises:
        KernelError: the accesses cannot be derived.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef), "a kernel is a function"
    return _Reader(function, definition).read()


@dataclass(slots=True)
class _Reader:
    """Abstract interpreter of a function's source; it repeats until its results are stable."""

    function: Any
    definition: ast.FunctionDef
    names: dict[str, Value] = field(default_factory=dict)
    reads: set[Root] = field(default_factory=set)
    writes: set[Root] = field(default_factory=set)
    returned: Value = _NOTHING

    def read(self) -> Accesses:
        arguments = self.definition.args
        assert arguments.vararg is None, "a kernel names its arguments"
        assert arguments.kwarg is None, "a kernel names its arguments"
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.names[argument.arg] = Value(frozenset({Root(argument.arg)}))
        before: object = None
        while (now := (dict(self.names), self.returned)) != before:
            before = now
            for statement in self.definition.body:
                self._statement(statement)
        return Accesses(frozenset(self.reads), frozenset(self.writes), self.returned)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=True):
                    self._assign(target, self._value(value))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, self._value(value))
            case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value))
            case ast.For(target=target, iter=over):
                self._assign(target, self._value(over))
            case ast.Return(value=ast.expr() as value):
                self.returned |= self._value(value)
            case ast.FunctionDef():
                raise KernelError(f"{self.function.__name__} defines a function")
            case _:
                pass
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                self._statement(inner)
            elif isinstance(inner, ast.expr):
                self._value(inner)

    def _assign(self, target: ast.expr, value: Value) -> None:
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                self.names[name.id] = self.names.get(name.id, _NOTHING) | value

    def _value(self, expression: ast.expr) -> Value:
        match expression:
            case ast.Name(id=name):
                return self.names.get(name, _NOTHING)
            case ast.Call():
                return self._call(expression)
            case ast.Compare():
                # The result of a comparison is never a pointer.
                self._all(expression)
                return _NOTHING
            case _:
                return self._all(expression)

    def _all(self, expression: ast.AST) -> Value:
        found = _NOTHING
        for inner in ast.iter_child_nodes(expression):
            if isinstance(inner, ast.expr):
                found |= self._value(inner)
            elif isinstance(inner, ast.keyword | ast.comprehension):
                found |= self._all(inner)
        return found

    def _call(self, call: ast.Call) -> Value:
        positional = [self._value(each) for each in call.args]
        named = {each.arg or "": self._value(each.value) for each in call.keywords}
        own = self._value(call.func) if isinstance(call.func, ast.Attribute) else _NOTHING
        last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if last in _LOADS + _STORES or last.startswith(_ATOMIC):
            return self._access(last, positional, named)
        called = called_function(self.function, call.func)
        if called is not None:
            return self._device_function(called, positional, named)
        found = own
        for value in (*positional, *named.values()):
            found |= value
        if any(isinstance(part, ast.Attribute) and part.attr == _POINTER_TYPE for part in ast.walk(call)):
            return Value(found.pointers | found.loaded)
        return found

    def _access(self, name: str, positional: list[Value], named: Mapping[str, Value]) -> Value:
        pointer = positional[0] if positional else named["pointer"]
        if name not in _STORES:
            self.reads |= pointer.pointers
        if name not in _LOADS:
            self.writes |= pointer.pointers
        return Value(loaded=frozenset(self._loaded(pointer.pointers)))

    def _loaded(self, roots: Iterable[Root]) -> Iterator[Root]:
        for root in roots:
            # Only one level of indirection is supported: no kernel follows a pointer that a loaded pointer refers to.
            if not root.is_loaded:
                yield Root(root.argument, is_loaded=True)

    def _device_function(self, function: Any, positional: list[Value], named: Mapping[str, Value]) -> Value:
        accesses = accesses_of(function)
        bound = dict(zip(inspect.signature(function).parameters, positional, strict=False)) | dict(named)

        def from_here(roots: frozenset[Root]) -> frozenset[Root]:
            found: set[Root] = set()
            for root in roots:
                given = bound.get(root.argument, _NOTHING)
                found |= set(self._loaded(given.pointers)) | given.loaded if root.is_loaded else given.pointers
            return frozenset(found)

        self.reads |= from_here(accesses.reads)
        self.writes |= from_here(accesses.writes)
        passed = {root.argument for root in accesses.returned.pointers if not root.is_loaded}
        loaded = frozenset().union(*(bound[name].loaded for name in passed if name in bound))
        return Value(from_here(accesses.returned.pointers), from_here(accesses.returned.loaded) | loaded)


def called_function(function: Any, called: ast.expr) -> Any:
    """Return the Triton device function that the expression `called` names, or None.

    In a process without Triton, a device function is a plain function with the decorator of Triton.
    """
    match called:
        case ast.Name(id=name):
            found = function.__globals__.get(name)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            found = getattr(function.__globals__.get(module), name, None)
        case _:
            return None
    inner = getattr(found, "fn", found)
    return inner if inspect.isfunction(inner) and (inner is not found or _is_of_triton(inner)) else None


@cache
def _is_of_triton(function: Any) -> bool:
    """Return whether a function is decorated with `triton.jit`."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    decorators = definition.decorator_list if isinstance(definition, ast.FunctionDef) else []
    return any(ast.unparse(each).startswith(_JIT) for each in decorators)
