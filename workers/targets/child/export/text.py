"""Format values and calls as Python source, wrapped to the line length."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

WIDTH = 88


class Code(NamedTuple):
    """Python source text of an expression, inserted into the test unchanged."""

    text: str


class Call(NamedTuple):
    """A function call to be formatted as Python source: function, arguments, options."""

    name: str
    arguments: Sequence[object] = ()
    options: Mapping[str, object] = {}


def literal(value: object) -> str:
    """Return the Python source of a value; tuples become lists."""
    match value:
        case Code(text=text):
            return text
        case Call(name=name, arguments=arguments, options=options):
            given = [*map(literal, arguments), *(f"{key}={literal(each)}" for key, each in options.items())]
            return f"{name}({', '.join(given)})"
        case str():
            return f'"{_escape(value)}"'
        case tuple() | list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    return repr(value)


def _escape(text: str) -> str:
    """Return a text escaped for a Python string literal, without the quotes."""
    return _printable(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def docstring(title: str, *sentences: str) -> str:
    """Return a module docstring as source: the title, then each sentence on its own line.

    All text is escaped, so that it cannot end the docstring.
    """
    # A single quote character needs no escape.
    safe = [_printable(re.sub('"(?=")', '\\\\"', text.replace("\\", "\\\\"))) for text in (title, *sentences)]
    lines = [
        *textwrap.wrap(safe[0], WIDTH - 3),
        "",
        *(line for text in safe[1:] for line in textwrap.wrap(text, WIDTH)),
    ]
    return '"""' + "\n".join(lines) + '\n"""'


def comment(text: str) -> str:
    """Return a text as a one-line comment."""
    return f"# {_printable(text)}"


def identifier(name: str, prefix: str) -> str:
    """Return a finding's name for a test name: lower case, without the engine's prefix."""
    return re.sub("[^a-z0-9]", "_", name.removeprefix(prefix).lower()).strip("_") or "finding"


def wrapped(value: object, before: str = "", after: str = "", width: int = WIDTH - 4) -> list[str]:
    """Return lines of source: `before`, a value, `after`, wrapped to the line length.

    A value that is too long gets one line for each item; a list of numbers fills its lines instead.
    """
    line = f"{before}{literal(value)}{after}"
    if len(line) <= width:
        return [line]

    def item(each: object, name: str = "") -> list[str]:
        return indented(wrapped(each, name, ",", width - 4))

    match value:
        case Code():
            return [line]
        case Call(name=name, arguments=arguments, options=options):
            inner = [text for each in arguments for text in item(each)]
            inner += [text for key, each in options.items() for text in item(each, f"{key}=")]
            return [f"{before}{name}(", *inner, f"){after}"]
        case dict():
            inner = [text for key, each in value.items() for text in item(each, f"{literal(key)}: ")]
            return [f"{before}{{", *inner, f"}}{after}"]
        case tuple() | list():
            return [f"{before}[", *_items(value, width - 4), f"]{after}"]
    return [line]


def _items(values: Sequence[Any], width: int) -> list[str]:
    if all(isinstance(each, int) for each in values):
        return indented(textwrap.wrap(", ".join(map(literal, values)) + ",", width))
    return [text for each in values for text in indented(wrapped(each, "", ",", width))]


def call(name: str, arguments: Sequence[object] = (), options: Mapping[str, object] | None = None) -> list[str]:
    """Return the lines of a statement that calls a function."""
    return wrapped(Call(name, arguments, options or {}))


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines indented by four spaces."""
    return [f"    {line}" if line else line for line in lines]
