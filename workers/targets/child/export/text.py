"""Python text: values and calls, broken where a line would be longer than in the tests of an engine."""

import re
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
            return f'"{_quoted(value)}"'
        case tuple() | list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    return repr(value)


def _quoted(text: str) -> str:
    """Return a text as it is between double quotes: nothing in it ends them, or the line."""
    return _printable(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def docstring(title: str, *sentences: str) -> str:
    """Return the docstring of a module: a title, and sentences that begin a line each; no text in it ends it."""
    # One quote alone stays as it is.
    safe = [_printable(re.sub('"(?=")', '\\\\"', text.replace("\\", "\\\\"))) for text in (title, *sentences)]
    lines = [
        *textwrap.wrap(safe[0], WIDTH - 3),
        "",
        *(line for text in safe[1:] for line in textwrap.wrap(text, WIDTH)),
    ]
    return '"""' + "\n".join(lines) + '\n"""'


def comment(text: str) -> str:
    """Return a text as a comment of one line."""
    return f"# {_printable(text)}"


def identifier(name: str, prefix: str) -> str:
    """Return the name of a finding as a part of the name of a test, without the prefix of its engine."""
    return re.sub("[^a-z0-9]", "_", name.removeprefix(prefix).lower()).strip("_") or "finding"


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
