"""Arguments of device ops: declared once, with direction, dtype and shape, and checked when an op is first launched.

An op takes one object. Its fields are flat buffers, annotated `In`, `Out` or `InOut`, and plain integers. At a launch a
buffer is a span, in the NumPy code an array, in the Triton code a tensor.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, dataclass_transform, get_args, get_type_hints

Memory: TypeAlias = Any
Mode: TypeAlias = Literal["in", "out", "inout", "int"]

A = TypeVar("A", bound="Arguments")

# What the letters of a shape are called among an op's integers.
LETTERS = {"K": "num_speculative_tokens", "V": "vocab_size", "W": "conv_width"}
# The dtype of buffers that may have any, but all the same one.
ANY_DTYPE = "any"
# In `of`: a span of any name will do.
ANY_NAME = "*"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a buffer must be: its dtype, and its shape as a product, flat in memory.

    Factors of a shape are B rows, T tokens, K speculative tokens, V vocabulary, W convolution width, the op's own
    integers, and names that are bound by the first buffer that leaves no other unknown. A span is accepted if it has
    the name of the argument or one of `of`: where a buffer of another name is meant to go, the op says so.
    """

    dtype: str
    shape: str
    of: tuple[str, ...] = ()
    mode: ClassVar[Mode]


class In(Declaration):
    """A buffer that is read."""

    mode = "in"


class Out(Declaration):
    """A buffer that is written, whatever was in it."""

    mode = "out"


class InOut(Declaration):
    """A buffer that is read and written, or written in part."""

    mode = "inout"


class Arguments:
    """The arguments of one op, by name. Immutable, and compared by identity: whoever launches keeps the object."""

    __slots__ = ()

    # What each argument is, in order; None for an integer.
    declared: ClassVar[Mapping[str, Declaration | None]]

    @classmethod
    def modes(cls) -> Mapping[str, Mode]:
        """Return how the op uses each argument, in order."""
        return {name: "int" if declared is None else declared.mode for name, declared in cls.declared.items()}

    def on(self, memory: Mapping[str, Any]) -> Self:
        """Return the same arguments with other memory."""
        changed: Self = replace(self, **memory)  # type: ignore[type-var]
        return changed

    def check(self) -> None:
        """Refuse spans that are not what is declared.

        Raises:
            TypeError: a span has another dtype or name.
            ValueError: the sizes of the spans and the integers disagree.
        """
        spans = {name: (each, getattr(self, name)) for name, each in self.declared.items() if each is not None}
        op, free = type(self).__name__, {span.dtype for each, span in spans.values() if each.dtype == ANY_DTYPE}
        for name, (each, span) in spans.items():
            if span.dtype != each.dtype and (each.dtype != ANY_DTYPE or len(free) > 1):
                raise TypeError(f"{op}.{name}: expected {each.dtype}, {span.name} is {span.dtype}")
            if span.name not in (name, *each.of) and ANY_NAME not in each.of:
                raise TypeError(f"{op}.{name}: expected {' or '.join((name, *each.of))}, got {span.name}")
        integers = {name: getattr(self, name) for name, each in self.declared.items() if each is None}
        known = integers | {letter: integers[name] for letter, name in LETTERS.items() if name in integers}
        complaint = disagreement(((name, each.shape, span.size) for name, (each, span) in spans.items()), known)
        if complaint is not None:
            raise ValueError(f"{op}.{complaint}")


@dataclass_transform(frozen_default=True, eq_default=False)
def arguments(cls: type[A]) -> type[A]:
    """Make a class of arguments: an immutable dataclass whose objects are compared by identity.

    Raises:
        TypeError: an argument is neither a declared buffer nor an int.
    """
    made = dataclass(frozen=True, slots=True, eq=False)(cls)
    hints = get_type_hints(made, include_extras=True)
    declared: dict[str, Declaration | None] = {}
    for field in fields(made):  # type: ignore[arg-type]
        marks = [each for each in get_args(hints[field.name]) if isinstance(each, Declaration)]
        if not marks and hints[field.name] is not int:
            raise TypeError(f"{cls.__name__}.{field.name} is neither In, Out, InOut nor int")
        declared[field.name] = marks[0] if marks else None
    made.declared = declared
    return made


def disagreement(sizes: Iterable[tuple[str, str, int]], known: Mapping[str, int]) -> str | None:
    """Return why no lengths give buffers (name, shape, size) their sizes; None if some do, as far as they are known."""
    bound, open_shapes = dict(known), [(name, shape, _factors(shape), size) for name, shape, size in sizes]
    while True:
        left = []
        for name, shape, factors, size in open_shapes:
            product, unknown = 1, []
            for factor in factors:
                value = _value(factor, bound)
                if value is None:
                    unknown.append(factor)
                else:
                    product *= value
            if len(unknown) > 1 or (unknown and not isinstance(unknown[0], ast.Name)):
                left.append((name, shape, factors, size))
            elif size != product if not unknown or not product else size % product:
                lengths = ", ".join(f"{key} = {value}" for key, value in bound.items() if key in shape)
                return f"{name}: expected {shape} elements, got {size} ({lengths})"
            elif unknown and product:
                assert isinstance(unknown[0], ast.Name)
                bound[unknown[0].id] = size // product
        if len(left) == len(open_shapes):
            return None
        open_shapes = left


@cache
def _factors(shape: str) -> tuple[ast.expr, ...]:
    """Return the factors of a shape."""
    factors, rest = [], ast.parse(shape, mode="eval").body
    while isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Mult):
        factors.append(rest.right)
        rest = rest.left
    return (rest, *reversed(factors))


def _value(factor: ast.expr, known: Mapping[str, int]) -> int | None:
    """Return the value of a sum, difference or product of names and numbers; None if a name is not known."""
    match factor:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _value(left, known), _value(right, known)
            if one is None or other is None:
                return None
            return one * other if isinstance(op, ast.Mult) else one + other if isinstance(op, ast.Add) else one - other
    raise TypeError(f"a factor of a shape is a name, a number or a sum, not {ast.unparse(factor)}")
