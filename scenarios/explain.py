"""Error messages of a scenario file: line, value found, allowed values."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

from pydantic import ValidationError

from scenarios.features import REFUSED
from scenarios.scenario_file import ScenarioFile
from scenarios.spec import INTEGER_MAX
from scenarios.strict_yaml import SEEN_MAX, Data, Lines, Where, describe_value, one_line
from scenarios.trace import Problem

Schema: TypeAlias = Mapping[str, Any]

EXPLAINED_MAX = 100

_NAME = "text of 1 to 64 letters, digits and _ . -"


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error in a scenario file: line, path of keys and indexes, message.

    `is_shape`: the whole value has the wrong type or range; a complaint about a value inside it replaces this one.
    `is_missing`: a required key is absent.
    """

    line: int
    path: Where
    message: str
    is_shape: bool = False
    is_missing: bool = False

    @property
    def rank(self) -> tuple[int, bool]:
        """Sort key: by line; in one line, an unknown (misspelt) key before a missing key."""
        return self.line, self.is_missing


def problem_complaint(problem: Problem, lines: Lines) -> Complaint:
    """Convert a problem of a trace to a complaint with the line in the file."""
    return Complaint(_line(lines, problem.path), problem.path, f"{_dotted_path(problem.path)}: {problem.message}")


def validation_complaints(error: ValidationError, data: Data, lines: Lines) -> tuple[list[Complaint], int]:
    """Convert pydantic's errors to complaints, one per path; also return how many were left out.

    For a union type, only the errors of the member that matched deepest are kept. The first EXPLAINED_MAX errors of
    the file are explained.
    """
    kept: dict[tuple[Where, str], Complaint] = {}
    items = error.errors(include_url=False, include_context=False, include_input=False)
    if len(items) > EXPLAINED_MAX:
        items.sort(key=lambda item: _line(lines, _existing_part(item["loc"], data)[0]))
    for item in items[:EXPLAINED_MAX]:
        complaint = _complaint(item["type"], item["loc"], data, lines)
        kept.setdefault((complaint.path, complaint.message), complaint)
    complaints = list(kept.values())
    explained = {c.path[:n] for c in complaints for n in range(len(c.path) + (not c.is_shape))}
    kept_complaints = [c for c in complaints if not c.is_shape or c.path not in explained]
    return kept_complaints, max(0, len(items) - EXPLAINED_MAX)


def _complaint(kind: str, location: Where, data: Data, lines: Lines) -> Complaint:
    path, value = _existing_part(location, data)
    line = _line(lines, path)
    name, schema = _dotted_path(path), _schema_at(path, data)
    if location[-1:] == ("[key]",):
        return Complaint(line, path, f"{describe_value(path[-1])} is not a valid name; expected {_NAME}")
    match kind:
        # A missing item of a fixed-length list has no name: report the wrong length of the whole list.
        case "missing" if "required" in schema:
            where = f"{name} lacks" if name else "the file lacks"
            keys = f"required are {', '.join(schema['required'])}"
            return Complaint(line, path, f"{where} {describe_value(location[-1])}; {keys}", is_missing=True)
        case "extra_forbidden":
            parent = _schema_at(path[:-1], data)
            where = f" in {_dotted_path(path[:-1])}" if path[:-1] else ""
            message = f"unknown key {describe_value(path[-1])}{where}; {_near(str(path[-1]), parent['properties'])}"
            return Complaint(line, path, message)
        case "union_tag_not_found":
            message = f"{name} lacks {describe_value('do')}; {_near(None, schema['discriminator']['mapping'])}"
            return Complaint(line, path, message, is_missing=True)
        case "union_tag_invalid":
            assert isinstance(value, dict)
            message = (
                f"unknown event {describe_value(value['do'])}; {_near(value['do'], schema['discriminator']['mapping'])}"
            )
            return Complaint(_line(lines, (*path, "do")), path, message)
    subject = name or "the file"
    for rule in REFUSED:
        if rule.lifted_by is not None and path == ("spec", rule.key):
            message = f"allowed are {rule.allowed}, or {_allowed_values(schema)} with fault {rule.lifted_by}"
            return Complaint(line, path, f"{subject} is {describe_value(value)}; {message}", is_shape=True)
    return Complaint(
        line, path, f"{subject} is {describe_value(value)}; expected {_allowed_values(schema)}", is_shape=True
    )


@cache
def _schema() -> Schema:
    """Return the JSON schema of a scenario file, built when the first error is explained."""
    return ScenarioFile.model_json_schema()


def _existing_part(location: Where, data: Data) -> tuple[Where, Data]:
    """Return the parts of an error's location that exist in the file, and the value there.

    Pydantic adds names of union members to the location; they are left out.

    Names of union members in the location are left out.
    """
    path: Where = ()
    value = data
    # Pydantic inserts the kind of the event between its index and its keys.
    parts = location[:2] + location[3:] if location[:1] == ("events",) else location
    for part in parts:
        match value, part:
            case dict(), str() if part in value:
                path, value = (*path, part), value[part]
            case list(), int() if part < len(value):
                path, value = (*path, part), value[part]
    return path, value


def _schema_at(path: Where, data: Data) -> Schema:
    """Return the JSON schema of the value at a path; if it has none, of the nearest parent."""
    schema = _resolve(_schema(), data)
    value = data
    for part in path:
        if isinstance(part, int):
            value = cast(list[Data], value)[part]
            members = schema.get("prefixItems", ())
            below = members[part] if part < len(members) else schema.get("items")
        else:
            value = cast(dict[str, Data], value)[part]
            below = schema.get("properties", {}).get(part) or _items_of(schema)
        if not below:
            break
        schema = _resolve(below, value)
    return schema


def _resolve(schema: Schema, value: Data) -> Schema:
    """Return a schema without references; of a union, the member for the value's type."""
    if "$ref" in schema:
        return _resolve(_schema()["$defs"][schema["$ref"].rpartition("/")[2]], value)
    if "discriminator" in schema and isinstance(value, dict):
        kind = value.get("do")
        reference = schema["discriminator"]["mapping"].get(kind) if isinstance(kind, str) else None
        return _resolve({"$ref": reference}, value) if reference else schema
    shape = "array" if isinstance(value, list) else "object" if isinstance(value, dict) else ""
    members = (_resolve(member, value) for member in schema.get("anyOf", ()))
    return next((member for member in members if member.get("type") == shape), schema)


def _items_of(schema: Schema) -> Schema | None:
    """Return the schema of the values of a mapping with arbitrary keys."""
    return next(iter(schema.get("patternProperties", {}).values()), None)


def _allowed_values(schema: Schema | None) -> str:
    """Describe the values that a schema allows, such as "an integer from 1 to 16"."""
    schema = _resolve(schema or {}, None)
    if members := schema.get("anyOf"):
        return " or ".join(map(_allowed_values, members))
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    match schema.get("type"):
        case "integer":
            return f"an integer{_bounds(schema)}"
        case "number":
            return f"a number{_bounds(schema)}"
        case "boolean":
            return "true or false"
        case "string":
            return f"text of the form {schema['pattern']} (quote digits)" if "pattern" in schema else "text"
        case "array" if "prefixItems" in schema:
            return f"a list of {' and '.join(map(_allowed_values, schema['prefixItems']))}"
        case "array":
            least = " with at least one item" if "minItems" in schema else ""
            return f"a list{least} ({_allowed_values(schema['items'])} each)"
        case "object" if "properties" in schema:
            return f"a mapping with keys {', '.join(schema['properties'])}"
        case "object":
            return f"a mapping from names to {_allowed_values(_items_of(schema))}"
    return "a mapping with key do and the keys of its event"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    assert low is not None, "every number has a lower bound"
    assert high is not None, "every number has an upper bound"
    return f" from {low} up" if high == INTEGER_MAX else f" from {low:g} to {high:.7g}"


def _near(value: Data, allowed: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}allowed are {', '.join(sorted(allowed))}"


def _line(lines: Lines, path: Where) -> int:
    """Return the line number of the deepest part of a path that exists in the file."""
    return next(lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines)


def _dotted_path(path: Where) -> str:
    """Return a path in dotted form, such as events[3].prompt[0]."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return one_line(name.removeprefix("."))[: 2 * SEEN_MAX]
