"""Find methods that change state without an assertion, in the source.

A method changes state if it changes something that outlives the call; `changes_of` defines what is counted. It asserts
if it contains an `assert`, or calls a function that only asserts. Methods that construct an object (`__init__`, and
what only it calls) are not counted, nor are methods that only forward: the method they call must assert.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence

# Every change of state in these packages must be asserted; older commits have these modules outside folders.
STOOD_LOOSE = ("artefact", "coordinator", "corpus", "host", "job", "origin", "pool", "store")
KEEPS_STATE = ("workers.engine", "cluster.dispatch", "cluster.storage", *(f"cluster.{name}" for name in STOOD_LOOSE))
MAKES = {"__init__", "__new__", "__post_init__"}
# Records for the judges, which do not affect the engine.
RECORDS = {"log", "_log", "probes", "_probes"}
CHANGES_A_COLLECTION = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "fill"),
    *("insert", "intersection_update", "pop", "popitem", "popleft", "put", "remove", "reverse", "rotate"),
    *("setdefault", "sort", "symmetric_difference_update", "update"),
}
CHANGES_A_FILE = {"unlink", "rename", "write_bytes", "write_text"}
CHANGES_A_DATABASE = ("insert", "update", "delete", "replace", "create", "drop", "alter")

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_in(module: str, prefixes: Sequence[str]) -> bool:
    """Return whether a module is one of the prefixes or below one."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def chain_of(node: ast.expr) -> list[str]:
    """Return the names of `a.b[i].c` (a, b and c); nothing if the chain starts otherwise."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=name):
            chain = chain_of(value)
            return [*chain, name] if chain else []
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return chain_of(value)
    return []


def targets_of(statement: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that an assignment statement binds, one by one."""
    match statement:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            to_read = list(targets)
        case ast.AugAssign(target=target) | ast.For(target=target):
            to_read = [target]
        case ast.AnnAssign(target=target, value=ast.expr()):
            to_read = [target]
        case ast.With(items=items):
            to_read = [item.optional_vars for item in items if item.optional_vars]
        case _:
            return
    while to_read:
        target = to_read.pop()
        if isinstance(target, ast.Tuple | ast.List):
            to_read.extend(target.elts)
        else:
            yield target


def changes_of(function: Function, forwards_to: set[str]) -> list[str]:
    """Return the state changes of a function that outlive it; empty if it has none.

    A change is
    - an attribute, or an item of an attribute, that is bound, augmented or deleted: `self.x = ...`, `row.n += 1`,
      `del self._free[key]`. A local name and its items do not count;
    - a call that changes a built-in collection in an attribute: `self._free.append(...)`. A call of an attribute in
      `forwards_to`, an object of our own classes, does not count: the called method must assert;
    - a SQL statement that writes, and a file that is written, renamed or removed.
    Log entries and probe counts do not count.
    """
    found = []
    for node in ast.walk(function):
        chains = [(target, chain_of(target)) for target in targets_of(node)]
        found += [ast.unparse(target) for target, chain in chains if len(chain) > 1 and chain[-1] not in RECORDS]
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, method = chain_of(node.func.value), node.func.attr
        is_collection = len(owner) > 1 and owner[-1] not in forwards_to | RECORDS and method in CHANGES_A_COLLECTION
        if is_collection or method in CHANGES_A_FILE or writes_sql(node):
            found.append(ast.unparse(node.func))
    return found


def writes_sql(call: ast.Call) -> bool:
    """Return whether a call passes a literal statement that writes to a database."""
    match call:
        case ast.Call(func=ast.Attribute(attr="execute" | "executemany" | "executescript"), args=[statement, *_]):
            text = ast.unparse(statement).lstrip("frb'\"").lower()
            return text.startswith(CHANGES_A_DATABASE)
    return False


def only_asserts(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements, except for a docstring, only assert."""
    rest = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return bool(rest) and all(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.For | ast.If) and only_asserts([*node.body, *node.orelse]))
        for node in rest
    )


def asserting_functions(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the names of functions that only assert; a caller of one counts as asserting."""
    nodes = (node for tree in trees.values() for node in ast.walk(tree))
    return {node.name for node in nodes if isinstance(node, FUNCTION) and only_asserts(node.body)}


def asserts(function: Function, asserting: set[str]) -> bool:
    """Return whether a function asserts, directly or by calling a function that only asserts."""
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and (chain_of(node.func) or [""])[-1] in asserting)
        for node in ast.walk(function)
    )


def attributes_of_our_own(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the attributes that only hold objects of the checkout's own classes."""
    classes = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    own: set[str] = set()
    other: set[str] = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                    made = chain_of(value.func)[-1:] if isinstance(value, ast.Call) else []
                case ast.AnnAssign(target=ast.Attribute(attr=name) | ast.Name(id=name), annotation=ast.Name(id=kind)):
                    made = [kind]
                case _:
                    continue
            (own if made and made[0] in classes else other).add(name)
    return own - other


def unasserted_changes(trees: Mapping[str, ast.Module]) -> tuple[list[str], list[str]]:
    """Return the methods, and the functions outside classes, with unasserted state changes."""
    asserting, own = asserting_functions(trees), attributes_of_our_own(trees)
    methods: list[str] = []
    functions: list[str] = []
    for module, tree in trees.items():
        if not is_in(module, KEEPS_STATE):
            continue
        making = makers(tree)
        for owner, function in functions_of(tree):
            if owner + function.name in making or asserts(function, asserting):
                continue
            changed = changes_of(function, own)
            if changed:
                place = f"{module}.{owner}{function.name} changes {', '.join(dict.fromkeys(changed))}"
                (methods if owner else functions).append(place)
    return methods, functions


def makers(module: ast.Module) -> set[str]:
    """Return the methods that construct objects: `__init__` and private ones that only it calls."""
    methods = [(owner, method) for owner, method in functions_of(module) if owner]
    called_by: dict[str, set[str]] = {}
    for owner, method in methods:
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute):
                called_by.setdefault(node.attr, set()).add(owner + method.name)
    made = {owner + method.name for owner, method in methods if method.name in MAKES}
    return made | {
        owner + method.name
        for owner, method in methods
        if method.name.startswith("_") and called_by.get(method.name) and called_by[method.name] <= made
    }


def functions_of(module: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield a module's functions, and its classes' methods with "Class." as prefix."""
    for node in module.body:
        if isinstance(node, FUNCTION):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.", method) for method in node.body if isinstance(method, FUNCTION))
