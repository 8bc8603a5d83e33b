"""Strict YAML reader: plain data with line numbers; no tags, aliases or anchors."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from scenarios.visible import visible_line

Data: TypeAlias = "bool | int | float | str | list[Data] | dict[str, Data] | None"
Where: TypeAlias = tuple[str | int, ...]
Lines: TypeAlias = Mapping[Where, int]

DEPTH_MAX = 12
SEEN_MAX = 60
OLD_BOOLEANS = frozenset(("yes", "no", "on", "off", "true", "false"))

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,19})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,4})?")
# Texts that libyaml refuses or reads exactly as PyYAML's own parser. The parsers differ in tabs, in question marks
# inside a word, and in the directives, tags and block scalars that they accept.
_READ_ALIKE = re.compile(r'[\n "-$&-=@-{}~]*')


class ScenarioError(ValueError):
    """A scenario cannot be used; the message is `FILE:LINE: value found; what is allowed`."""


def read(text: str, name: str, nodes_max: int | None = None) -> tuple[Data, Lines]:
    """Return the data of a one-document YAML text, and the line number of each path.

    Messages use `name` as the file name; `nodes_max` limits the number of keys and values together.

    Raises:
        ScenarioError: the text is not exactly one strict YAML document.
    """
    if yaml.__with_libyaml__ and _READ_ALIKE.fullmatch(text):
        # libyaml is seven times as fast; for a refused text, PyYAML's own parser below gives the reason.
        with suppress(yaml.YAMLError, ValueError, OverflowError):
            return _Reader(yaml.parse(text, Loader=yaml.CSafeLoader), text, name, nodes_max).read()
    return _Reader(yaml.parse(text, Loader=yaml.SafeLoader), text, name, nodes_max).read()


def describe_value(value: Data) -> str:
    """Return a short description of a value found, on one line of ASCII."""
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
    text = json.dumps(value)
    return text if len(text) <= SEEN_MAX else f"{text[:SEEN_MAX]}... ({len(text)} characters)"


def one_line(text: str) -> str:
    """Return a text on one line: white space collapsed, hidden characters escaped."""
    return visible_line(" ".join(text.split()))


@dataclass
class _Reader:
    """Converts YAML parser events to plain data, with a line number for each path."""

    events: Iterator[Event]
    text: str
    name: str
    nodes_max: int | None = None
    lines: dict[Where, int] = field(default_factory=dict)
    _num_nodes: int = 0

    def read(self) -> tuple[Data, Lines]:
        """Return the data of a one-document text, and the line number of each path."""
        try:
            return self._document(), self.lines
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise self._error(
                line, f"not YAML: {one_line(error.problem or 'syntax error')}; expected block YAML"
            ) from error
        except yaml.reader.ReaderError as error:
            line = 1 + self.text.count("\n", 0, error.position)
            raise self._error(line, f"character U+{error.character:04X} is not allowed in YAML; write text") from error
        except ScenarioError:
            raise
        except (ValueError, OverflowError) as error:
            # PyYAML does not catch these for out-of-range numbers in escapes and directives.
            raise self._error(1, f"not YAML: {one_line(str(error))}; write plain text") from error

    def _error(self, line: int, message: str) -> ScenarioError:
        return ScenarioError(f"{self.name}:{line}: {message}")

    def _document(self) -> Data:
        next(self.events)
        if not isinstance(next(self.events), DocumentStartEvent):
            raise self._error(1, "the file is empty; a scenario has at least the key events")
        data = self._value(next(self.events), ())
        assert isinstance(next(self.events), DocumentEndEvent)
        after = next(self.events)
        if isinstance(after, DocumentStartEvent):
            raise self._error(_line_of(after), "a second document begins; a file holds one trace")
        return data

    def _value(self, event: Event, path: Where) -> Data:
        line = _line_of(event)
        self._num_nodes += 1
        if self.nodes_max is not None and self._num_nodes > self.nodes_max:
            message = f"more than {self.nodes_max:,} keys and values, the maximum (--no-limits lifts this)"
            raise self._error(line, message)
        self.lines.setdefault(path, line)
        if isinstance(event, AliasEvent):
            raise self._error(line, f"alias *{event.anchor}; aliases are not allowed, write the value itself")
        assert isinstance(event, NodeEvent)
        if event.anchor is not None:
            raise self._error(line, f"anchor &{event.anchor}; anchors are not allowed, write the value each time")
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)
        if event.tag is not None:
            raise self._error(line, f"tag {describe_value(event.tag)}; tags are not allowed, write a plain value")
        if isinstance(event, ScalarEvent):
            return self._scalar(event, line)
        if len(path) >= DEPTH_MAX:
            raise self._error(line, f"nested {len(path) + 1} deep; at most {DEPTH_MAX} levels are allowed")
        if isinstance(event, SequenceStartEvent):
            items: list[Data] = []
            while not isinstance(item := next(self.events), SequenceEndEvent):
                items.append(self._value(item, (*path, len(items))))
            return items
        assert isinstance(event, MappingStartEvent)
        return self._mapping(path)

    def _mapping(self, path: Where) -> dict[str, Data]:
        mapping: dict[str, Data] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            line = _line_of(event)
            key = self._value(event, (*path, ""))
            del self.lines[(*path, "")]
            if not isinstance(key, str):
                raise self._error(
                    line, f"{describe_value(key)} is used as a key; keys are text, quote it if it is meant"
                )
            if key in mapping:
                first = self.lines[(*path, key)]
                raise self._error(
                    line, f"key {describe_value(key)} appears twice, first on line {first}; each key goes once"
                )
            self.lines[(*path, key)] = line
            mapping[key] = self._value(next(self.events), (*path, key))
        return mapping

    def _scalar(self, event: ScalarEvent, line: int) -> Data:
        """Return null, a boolean, a decimal number, or text (also for 010, 1:30 and 0x10)."""
        text = event.value
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise self._error(line, f"{describe_value(text)} has half a surrogate pair; write whole characters")
        if event.style:
            return text
        if text in ("", "~", "null"):
            return None
        if text in ("true", "false"):
            return text == "true"
        if text.lower() in OLD_BOOLEANS:
            raise self._error(line, f"{text} is ambiguous in YAML; write true or false, or quote it if it is text")
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text


def _line_of(event: Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1
