"""Generate mutants: small changes of a module, each replacing one node of its syntax tree.

Generated: other operators (comparison, arithmetic, boolean; one operand of `and` and `or` dropped), `not` and minus
dropped, constants plus and minus one, True for False, bounds of slices and ranges plus and minus one, min for max, any
for all, neighbouring arguments exchanged, conditions negated, statements deleted: calls (including waits, records,
captures and launches), assignments, returns, `break` and `continue`.

Not generated, because the behaviour cannot change, or only an internal check would notice: docstrings and other
strings, type annotations, decorators, imports, assertions and their messages, raised exceptions, `strict=` of `zip`,
exchanged arguments of a minimum or maximum, and calls of the engine's observer, which only counts probes. Statements
without which a name has no value are not deleted either: all statements outside functions, and in a function the only
assignment of a local name.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
OTHER_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
# Functions with interchangeable arguments.
SYMMETRIC = {"min", "max", "minimum", "maximum"}
DELETED = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Return, ast.Break, ast.Continue)
LEFT_ALONE = (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Pass, ast.Global, ast.Nonlocal)
# Fields of a node that do not affect execution, or that run when the module is loaded.
LEFT_ALONE_FIELDS = {
    "annotation",
    "returns",
    "decorator_list",
    "bases",
    "type_comment",
    "ctx",
    "ops",
    "op",
    "pattern",
    "type_params",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
OBSERVER = re.compile(r"^[\w.]*observer\.\w+\(")
CONDITIONS = {"test", "ifs", "guard"}
TEXT_MAX = 100

Put = Callable[[ast.AST], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A small change of one source line, such as `<` to `<=`.

    `index` is its position among the changes of the file, `lines` are the lines of its statement, `in_function` says
    whether it runs with a function or when the module is loaded.
    """

    file: str
    line: str
    change: str
    number: int
    index: int = field(compare=False)
    lines: range = field(compare=False)
    in_function: bool = field(compare=False)

    @property
    def names(self) -> tuple[str, str, str]:
        """Return file, line text and change, by which results name the mutant."""
        return self.file, self.line, self.change + (f" #{self.number}" if self.number > 1 else "")

    @property
    def key(self) -> str:
        """Return the mutant's identifier in result files."""
        return " | ".join(self.names)


@dataclass(frozen=True, slots=True)
class Place:
    """Source lines of a change, and whether they are in a function (or run at import)."""

    lines: range
    in_function: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """Replacement of one node by another; `put` inserts a node in the old one's position."""

    old: ast.AST
    new: ast.AST
    put: Put
    place: Place

    def text(self) -> str:
        """Return `old → new` as source, long nodes cut around the first difference."""
        old, new = _source(self.old), _source(self.new)
        if len(old) > TEXT_MAX:
            same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new))
            first = max(0, same - 20)
            old, new = (("…" if first else "") + each[first : first + TEXT_MAX] for each in (old, new))
        return f"{old} → {new}"


def _source(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return the mutants of a file, in source order."""
    text, seen = source.splitlines(), Counter[tuple[str, str]]()
    found = []
    for index, change in enumerate(substitutions(ast.parse(source))):
        line = getattr(change.old, "lineno", change.place.lines[0])
        described = text[line - 1].strip(), change.text()
        seen[described] += 1
        place = change.place
        found.append(Mutant(file, *described, seen[described], index, place.lines, place.in_function))
    return found


def mutated(source: str, index: int) -> ast.Module:
    """Return a module's tree with the change number `index` applied."""
    tree = ast.parse(source)
    for number, change in enumerate(substitutions(tree)):
        if number == index:
            change.put(change.new)
            return ast.fix_missing_locations(tree)
    raise IndexError(f"there are fewer than {index + 1} changes")


def _place(node: ast.stmt | ast.match_case, in_function: bool) -> Place:
    """Return the lines of a statement; of a compound statement only the lines of its head."""
    if isinstance(node, ast.match_case):
        return Place(range(node.pattern.lineno, node.body[0].lineno), in_function)
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    assert node.end_lineno is not None, "a parsed statement has an end"
    if not body:
        return Place(range(node.lineno, node.end_lineno + 1), in_function)
    first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
    return Place(range(node.lineno, max(node.lineno + 1, first.lineno)), in_function)


def substitutions(tree: ast.Module) -> Iterator[Substitution]:
    """Yield every change of a module's tree, without applying any."""
    needed = _only_assignments(tree)
    for name, statement, put in _children(tree):
        assert name == "body", "the children of a module are its statements"
        yield from _of_statement(statement, put, needed, in_function=False)


def _only_assignments(tree: ast.Module) -> Set[ast.AST]:
    """Return the assignments to local names that are bound only once in their function."""
    found: set[ast.AST] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            bound = Counter(argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg))
            nodes = list(ast.walk(function))
            bound.update(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
            # An augmented assignment needs an earlier value.
            added = (node.target for node in nodes if isinstance(node, ast.AugAssign))
            bound.subtract(target.id for target in added if isinstance(target, ast.Name))
            for node in nodes:
                if isinstance(node, ast.Assign | ast.AnnAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names = [each for target in targets for each in _parts_of(target)]
                    if any(isinstance(each, ast.Name) and bound[each.id] == 1 for each in names):
                        found.add(node)
    return found


def _parts_of(target: ast.expr) -> Iterator[ast.expr]:
    """Yield the names that an assignment target binds, item by item."""
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _parts_of(each)
    else:
        yield target


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST, Put]]:
    """Yield the child nodes that may change, each with its field and a replacing function."""
    for name, value in ast.iter_fields(node):
        if name in LEFT_ALONE_FIELDS or _is_sign(node, name):
            continue
        if isinstance(value, ast.AST):
            yield name, value, partial(setattr, node, name)
        elif isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield name, child, partial(value.__setitem__, index)


def _of_statement(statement: ast.AST, put: Put, needed: Set[ast.AST], in_function: bool) -> Iterator[Substitution]:
    if isinstance(statement, LEFT_ALONE) or _is_docstring(statement) or _is_alias(statement, in_function):
        return
    if isinstance(statement, ast.Expr) and OBSERVER.search(ast.unparse(statement.value)):
        return
    if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(statement, ast.stmt):
        place = _place(statement, in_function)
        if in_function and isinstance(statement, DELETED) and statement not in needed:
            yield Substitution(statement, ast.Pass(), put, place)
        for new in _replacements(statement):
            yield Substitution(statement, new, put, place)
    elif isinstance(statement, ast.match_case):
        place = _place(statement, in_function)
    inner = in_function or isinstance(statement, FUNCTIONS)
    for name, child, put_child in _children(statement):
        if isinstance(child, ast.stmt | ast.match_case | ast.ExceptHandler):
            yield from _of_statement(child, put_child, needed, inner)
        elif not isinstance(statement, ast.ExceptHandler):
            # Default arguments are evaluated when the function is defined.
            yield from _of_expression(name, child, put_child, place)


def _of_expression(name: str, node: ast.AST, put: Put, place: Place) -> Iterator[Substitution]:
    if isinstance(node, LEFT_ALONE) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return
    texts = {ast.dump(node)}
    for new in _replacements(node, is_condition=name in CONDITIONS):
        text = ast.dump(new)
        if text not in texts:
            texts.add(text)
            yield Substitution(node, new, put, place)
    inner = Place(place.lines, place.in_function or isinstance(node, ast.Lambda))
    for field_name, child, put_child in _children(node):
        yield from _of_expression(field_name, child, put_child, inner)


def _is_sign(node: ast.AST, name: str) -> bool:
    """Return whether a field is the number of a negative constant, which is changed as a whole."""
    return isinstance(node, ast.UnaryOp) and name == "operand" and _number(node) is not None


def _is_docstring(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_alias(statement: ast.AST, in_function: bool) -> bool:
    """Return whether a statement outside functions is a type alias."""
    if in_function or not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation) == "TypeAlias":
        return True
    return isinstance(statement.value, ast.Subscript | ast.BinOp) and any(
        isinstance(node, ast.Name) and node.id in ("NDArray", "Callable", "tuple", "dict", "list", "Literal")
        for node in ast.walk(statement.value)
    )


def _replacements(node: ast.AST, is_condition: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes that may replace a node; duplicates are possible."""
    # A single comparison, negation or constant is negated below.
    is_negated = isinstance(node, ast.UnaryOp | ast.Constant) or (isinstance(node, ast.Compare) and len(node.ops) == 1)
    if is_condition and isinstance(node, ast.expr) and not is_negated:
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for at, operator in enumerate(ops):
                for other in COMPARISONS[type(operator)]:
                    yield ast.Compare(left, [*ops[:at], other(), *ops[at + 1 :]], comparators)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for at in range(len(values)):
                rest = [*values[:at], *values[at + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in OPERATORS:
            yield ast.AugAssign(target, OPERATORS[type(operator)](), value)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
            yield from _neighbouring_numbers(node)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant():
            yield from _neighbouring_numbers(node)
        case ast.Call():
            yield from _calls_like(node)
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from (ast.Slice(each, upper, step) for each in _neighbours(lower))
            yield from (ast.Slice(lower, each, step) for each in _neighbours(upper))


def _calls_like(call: ast.Call) -> Iterator[ast.Call]:
    """Yield variants of a call: exchanged arguments, the opposite function, a changed range."""
    positional, keywords, name = call.args, call.keywords, call.func
    is_symmetric = isinstance(name, ast.Name | ast.Attribute) and ast.unparse(name).split(".")[-1] in SYMMETRIC
    for at in range(0 if is_symmetric else len(positional) - 1):
        if not any(isinstance(each, ast.Starred) for each in positional[at : at + 2]):
            exchanged = [*positional[:at], positional[at + 1], positional[at], *positional[at + 2 :]]
            yield ast.Call(name, exchanged, keywords)
    for at in range(len(keywords) - 1):
        one, other = keywords[at : at + 2]
        if one.arg and other.arg:
            pair = [ast.keyword(one.arg, other.value), ast.keyword(other.arg, one.value)]
            yield ast.Call(name, positional, [*keywords[:at], *pair, *keywords[at + 2 :]])
    match name:
        case ast.Name(id=called) if called in OTHER_CALLS:
            yield ast.Call(ast.Name(OTHER_CALLS[called], ast.Load()), positional, keywords)
        case ast.Attribute(value=owner, attr=called) if called in OTHER_CALLS:
            yield ast.Call(ast.Attribute(owner, OTHER_CALLS[called], ast.Load()), positional, keywords)
        case ast.Name(id="range"):
            for at, argument in enumerate(positional):
                for each in _neighbours(argument):
                    yield ast.Call(name, [*positional[:at], each, *positional[at + 1 :]], keywords)


def _neighbours(bound: ast.expr | None) -> Iterator[ast.expr]:
    """Yield a bound plus one and minus one; a constant is changed as such."""
    if bound is not None and _number(bound) is None:
        yield ast.BinOp(bound, ast.Add(), ast.Constant(1))
        yield ast.BinOp(bound, ast.Sub(), ast.Constant(1))


def _number(node: ast.AST) -> int | float | None:
    """Return the signed value of a numeric constant, else None."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value if not isinstance(value, bool) else None
    return None


def _neighbouring_numbers(node: ast.AST) -> Iterator[ast.expr]:
    value = _number(node)
    if value is not None:
        for neighbour in (value + 1, value - 1):
            new = ast.Constant(abs(neighbour))
            yield new if neighbour >= 0 else ast.UnaryOp(ast.USub(), new)
