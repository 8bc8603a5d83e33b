"""Python text: values and calls, broken where a line would be longer than vLLM's may be."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

WIDTH = 88


class Code(NamedTuple):
    """An expression that stands as it is."""

    text: str


class Call(NamedTuple):
    """A call of a function."""

    name: str
    arguments: Sequence[object] = ()
    options: Mapping[str, object] = {}


def literal(value: object) -> str:
    """Return a value as Python writes it, tuples as lists."""
    match value:
        case Code(text=text):
            return text
        case Call(name=name, arguments=arguments, options=options):
            given = [*map(literal, arguments), *(f"{key}={literal(each)}" for key, each in options.items())]
            return f"{name}({', '.join(given)})"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        case tuple() | list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    return repr(value)


def broken(value: object, before: str = "", behind: str = "", width: int = WIDTH - 4) -> list[str]:
    """Return the lines of a value between two texts, as wide as the body of a function may be.

    What is too long has an item a line, but for a list of numbers, which is filled up.
    """
    line = f"{before}{literal(value)}{behind}"
    if len(line) <= width:
        return [line]

    def item(each: object, name: str = "") -> list[str]:
        return indented(broken(each, name, ",", width - 4))

    match value:
        case Code():
            return [line]
        case Call(name=name, arguments=arguments, options=options):
            inner = [text for each in arguments for text in item(each)]
            inner += [text for key, each in options.items() for text in item(each, f"{key}=")]
            return [f"{before}{name}(", *inner, f"){behind}"]
        case dict():
            inner = [text for key, each in value.items() for text in item(each, f"{literal(key)}: ")]
            return [f"{before}{{", *inner, f"}}{behind}"]
        case tuple() | list():
            return [f"{before}[", *_items(value, width - 4), f"]{behind}"]
    return [line]


def _items(values: Sequence[Any], width: int) -> list[str]:
    if all(isinstance(each, int) for each in values):
        return indented(textwrap.wrap(", ".join(map(literal, values)) + ",", width))
    return [text for each in values for text in indented(broken(each, "", ",", width))]


def call(name: str, arguments: Sequence[object] = (), options: Mapping[str, object] | None = None) -> list[str]:
    """Return the lines of a call that is a statement."""
    return broken(Call(name, arguments, options or {}))


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines of a block."""
    return [f"    {line}" if line else line for line in lines]
