"""Python text: values and calls, broken where a line would be longer than vLLM's may be."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WIDTH = 88


class Code(NamedTuple):
    """An expression that stands as it is."""

    text: str


def literal(value: object) -> str:
    """Return a value as Python writes it, tuples as lists."""
    match value:
        case Code(text=text):
            return text
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        case tuple() | list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    return repr(value)


def call(
    name: str,
    arguments: Sequence[object] = (),
    options: Mapping[str, object] | None = None,
    before: str = "",
) -> list[str]:
    """Return the lines of a call that stands behind some text; one that is too long has an argument a line."""
    items = [literal(each) for each in arguments] + [f"{key}={literal(each)}" for key, each in (options or {}).items()]
    line = f"{before}{name}({', '.join(items)})"
    if len(line) <= WIDTH - 4:
        return [line]
    return [f"{before}{name}(", *(inner for item in items for inner in _argument(item)), ")"]


def _argument(item: str) -> list[str]:
    """Return an argument's lines; a long list is filled up."""
    line = f"    {item},"
    if len(line) <= WIDTH - 4 or "[" not in item:
        return [line]
    head, _, rest = item.partition("[")
    inner = textwrap.wrap(rest.removesuffix("]") + ",", WIDTH - 4 - 8)
    return [f"    {head}[", *(f"        {each}" for each in inner), "    ],"]


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines of a block."""
    return [f"    {line}" if line else line for line in lines]


def listed(name: str, items: Sequence[object]) -> list[str]:
    """Return the lines that give a list a name; one that is too long has an item a line."""
    line = f"{name} = {literal(items)}"
    if len(line) <= WIDTH - 4:
        return [line]
    return [f"{name} = [", *(f"    {literal(item)}," for item in items), "]"]
