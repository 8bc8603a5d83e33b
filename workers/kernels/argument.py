"""Arguments of device ops, declared once with direction, dtype and shape.

Checked at an op's first launch.

An op takes one arguments object. Its fields are flat buffers, annotated `In`, `Out` or `InOut`, and plain integers. A
buffer is a span at a launch, an array in NumPy code, and a tensor in Triton code.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter, itemgetter
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

Memory: TypeAlias = Any
Mode: TypeAlias = Literal["in", "out", "inout", "int"]

A = TypeVar("A", bound="Arguments")

# A name, a number, or a sum of names, numbers and multiples of names.
_TERM = r"(?:\d+ \* )?\w+"
_FACTOR = rf"(?:\w+|\({_TERM}(?: [+-] {_TERM})*\))"

# The integer argument of an op that each letter in a shape stands for.
LETTERS = {"K": "num_speculative_tokens", "V": "vocab_size", "W": "conv_width"}
# For buffers of any dtype; all such buffers of an op must have the same dtype.
ANY_DTYPE = "any"
FIT_MAX = 4096
# In `of`: a span with any name is accepted.
ANY_NAME = "*"
_DESCRIBED = attrgetter("described")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The required dtype and shape of a buffer; the shape is a product, and memory is flat.

    Factors of a shape are B rows, T tokens, K speculative tokens, V vocabulary, W convolution width, the op's own
    integers, and other names, each bound by the first buffer in which it is the only unknown. A span is accepted if it
    has the name of the argument or a name in `of`.
    """

    dtype: str
    shape: str
    of: tuple[str, ...] = ()
    mode: ClassVar[Mode]


class In(Declaration):
    """A buffer that the op reads."""

    mode = "in"


class Out(Declaration):
    """A buffer that the op overwrites completely, without reading it."""

    mode = "out"


class InOut(Declaration):
    """A buffer that the op reads and writes, or writes in part."""

    mode = "inout"


class Arguments:
    """The arguments of one device op, by name.

    Immutable, compared by identity: callers keep the object.
    """

    __slots__ = ()

    # The declaration of each argument, in order; None for an integer.
    declared: ClassVar[Mapping[str, Declaration | None]]
    # Integers and span names, dtypes and sizes that have passed the check.
    known_to_fit: ClassVar[set[tuple[Any, ...]]]

    used: ClassVar[Mapping[str, Mode]]
    # Returns the arguments of an object, in order.
    taken: ClassVar[Callable[[Any], Any]]
    # Name, argument index and declaration of each buffer; name and argument index of each integer.
    buffers: ClassVar[Sequence[tuple[str, int, Declaration]]]
    lengths: ClassVar[Sequence[tuple[str, int]]]
    # Select the arguments that the check depends on: buffers, and the integers that shapes use.
    buffers_of: ClassVar[Callable[[Sequence[Any]], Sequence[Any]]]
    integers_of: ClassVar[Callable[[Sequence[Any]], Sequence[Any]]]

    @classmethod
    def modes(cls) -> Mapping[str, Mode]:
        return cls.used

    def on(self, memory: Mapping[str, Any]) -> Self:
        """Return a copy of these arguments in which the buffers named in `memory` are replaced."""
        return type(self)(*(memory[name] if name in memory else getattr(self, name) for name in self.declared))

    def values(self) -> tuple[Any, ...]:
        taken: tuple[Any, ...] = type(self).taken(self)
        return taken

    def check(self, values: Sequence[Any]) -> None:
        """Raise if a buffer has another type or size than its declaration.

        Raises:
            TypeError: a span has another dtype or name.
            ValueError: the sizes of the spans and the integers disagree.
        """
        op = type(self)
        key = (op.integers_of(values), *map(_DESCRIBED, op.buffers_of(values)))
        if key not in self.known_to_fit:
            complaint = self._complaint(values)
            if complaint is not None:
                raise complaint
            if len(self.known_to_fit) >= FIT_MAX:
                self.known_to_fit.clear()
            self.known_to_fit.add(key)

    def _complaint(self, values: Sequence[Any]) -> Exception | None:
        """Return the first type or size error of the buffers; None if all are correct."""
        op, sizes, free = type(self), [], set()
        known = {name: values[at] for name, at in op.lengths}
        for name, at, declared in op.buffers:
            found, dtype, size = values[at].described
            sizes.append((name, declared.shape, size))
            if dtype != declared.dtype:
                free.add(dtype)
                if declared.dtype != ANY_DTYPE or len(free) > 1:
                    return TypeError(f"{op.__name__}.{name}: expected {declared.dtype}, {found} is {dtype}")
            if found != name and found not in declared.of and ANY_NAME not in declared.of:
                expected = " or ".join((name, *declared.of))
                return TypeError(f"{op.__name__}.{name}: expected {expected}, got {found}")
        complaint = disagreement(sizes, known)
        return None if complaint is None else ValueError(f"{op.__name__}.{complaint}")


@dataclass_transform(frozen_default=True, eq_default=False)
def arguments(cls: type[A]) -> type[A]:
    """Make a class of op arguments a dataclass whose objects are equal only to themselves.

    Objects are immutable for type checkers only. Frozen dataclasses take three times as long to make, and a step of a
    new shape makes dozens.

    Raises:
        TypeError: an argument is neither a declared buffer nor an int.
    """
    made = dataclass(slots=True, eq=False)(cls)
    hints = get_type_hints(made, include_extras=True)
    declared: dict[str, Declaration | None] = {}
    for field in fields(made):  # type: ignore[arg-type]
        marks = [each for each in get_args(hints[field.name]) if isinstance(each, Declaration)]
        if not marks and hints[field.name] is not int:
            raise TypeError(f"{cls.__name__}.{field.name} is neither In, Out, InOut nor int")
        declared[field.name] = marks[0] if marks else None
    made.used = {name: "int" if each is None else each.mode for name, each in declared.items()}
    made.declared, made.known_to_fit = declared, set()
    first, *rest = declared
    made.taken = attrgetter(first, *rest) if rest else lambda given: (getattr(given, first),)
    in_shapes = {name for each in declared.values() if each is not None for name in names_in(each.shape)}
    places = {name: at for at, name in enumerate(declared)}
    made.buffers = [(name, places[name], each) for name, each in declared.items() if each is not None]
    integers = {name: at for name, at in places.items() if declared[name] is None}
    letters = [(letter, integers[name]) for letter, name in LETTERS.items() if name in integers]
    made.lengths = [*letters, *integers.items()]
    made.buffers_of = _selector([at for _, at, _ in made.buffers])
    made.integers_of = _selector([at for name, at in integers.items() if name in in_shapes])
    return made


def _selector(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that selects the values at these indexes of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple([values[at] for at in places])


def disagreement(sizes: Sequence[tuple[str, str, int]], known: Mapping[str, int]) -> str | None:
    """Return how buffer sizes contradict the declared shapes and known lengths, or None.

    None if they can.
    """
    bound, still_open = dict(known), sizes
    while True:
        left = []
        for each in still_open:
            name, shape, size = each
            # Most shapes are a single name, which the first buffer binds.
            length = bound.get(shape)
            if length is None and shape.isidentifier():
                length = bound[shape] = size
            if length == size:
                continue
            product, unknown, num_unknown = 1, "", 0
            for factor in factors_of(shape):
                value = factor.value(bound)
                if value is None:
                    unknown, num_unknown = factor.name, num_unknown + 1
                else:
                    product *= value
            if num_unknown > 1 or (num_unknown and not unknown):
                left.append(each)
            elif size != product if not num_unknown or not product else size % product:
                lengths = ", ".join(f"{key} = {value}" for key, value in bound.items())
                return f"{name}: expected {shape} elements, got {size} ({lengths})"
            elif num_unknown and product:
                bound[unknown] = size // product
        if not left or len(left) == len(still_open):
            return None
        still_open = left


class Factor(NamedTuple):
    """One factor of a shape: a linear sum of argument names, such as "1 + K"."""

    constant: int
    terms: tuple[tuple[int, str], ...]
    name: str

    def value(self, known: Mapping[str, int]) -> int | None:
        """Return the value of the factor; None if an argument's length is unknown."""
        total = self.constant
        for count, name in self.terms:
            length = known.get(name)
            if length is None:
                return None
            total += count * length
        return total


@cache
def factors_of(shape: str) -> tuple[Factor, ...]:
    """Parse a shape into its factors: names, numbers, and sums in brackets.

    Raises:
        ValueError: the shape has another form.
    """
    if not re.fullmatch(rf"{_FACTOR}( \* {_FACTOR})*", shape):
        raise ValueError(f"a shape is a product of names, numbers and sums in brackets, not {shape}")
    return tuple(_factor(each) for each in re.findall(_FACTOR, shape))


def names_in(shape: str) -> set[str]:
    """Return the names of arguments that a shape contains."""
    return {LETTERS.get(name, name) for factor in factors_of(shape) for _, name in factor.terms}


def _factor(text: str) -> Factor:
    constant, terms = 0, []
    for sign, count, name in re.findall(r"([+-]?) ?(\d*)(?: \* )?([A-Za-z_]\w*|)", text.strip("()")):
        number = (-1 if sign == "-" else 1) * int(count or 1)
        if name:
            terms.append((number, name))
        elif count:
            constant += number
    return Factor(constant, tuple(terms), text if terms == [(1, text)] else "")
