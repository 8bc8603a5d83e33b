"""YAML codec of traces: strict reader (errors with file and line) and lossless writer."""

import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scenarios.explain import problem_complaint, validation_complaints
from scenarios.input_file import read_file
from scenarios.limits import over_limits
from scenarios.scenario_file import RunOn, ScenarioFile
from scenarios.strict_yaml import OLD_BOOLEANS, ScenarioError, Where, read
from scenarios.trace import Trace, problems
from scenarios.visible import visible_line

__all__ = ["BYTES_MAX", "ScenarioError", "dumps", "find_scenarios", "line_of", "load", "loads", "run_on"]

BYTES_MAX = 4 << 20
# Limit on values, keys and brackets: reading this many takes a few seconds.
NODES_MAX = 100_000
SUFFIX = ".yaml"
# Triage files of known findings: they are stored next to scenario files but are not scenarios.
KNOWN_SUFFIX = ".known.yaml"

_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

COMMENT_LINE_MAX = 1000
NOT_RECORDED = RunOn()


def find_scenarios(paths: Sequence[Path | str]) -> list[Path]:
    """Return the scenario files at or below the paths, sorted and without duplicates.

    Triage files of known findings are left out.

    Raises:
        ScenarioError: no path is given, a path is missing or unreadable, or a folder holds no scenario file.
    """
    if not paths:
        raise ScenarioError(f"no path was given; name scenario files (*{SUFFIX}) or folders of them")
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        for file in _files_at(path):
            # A symbolic link to itself has no real path; keep it, and reading it raises the error.
            found.setdefault(os.path.realpath(file), file)
    return sorted(found.values(), key=str)


def _files_at(path: Path) -> list[Path]:
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as error:
        raise ScenarioError(
            f"{path}: no such file or folder; name scenario files (*{SUFFIX}) or folders of them"
        ) from error
    except (OSError, ValueError) as error:
        # A null byte in a path raises ValueError, not OSError.
        why = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"{path}: {why}; name readable scenario files (*{SUFFIX}) or folders of them") from error
    files = _files_below(path) if is_folder else [path]
    if not files:
        raise ScenarioError(f"{path}: the folder holds no scenario file (*{SUFFIX}); name one that does")
    return files


def _files_below(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise ScenarioError(f"{error.filename}: {error.strerror}; every folder must be readable") from error

    files = []
    for where, _, names in os.walk(folder, onerror=refuse):
        for name in names:
            if name.endswith(".yml"):
                raise ScenarioError(f"{Path(where, name)}: the name ends in .yml; scenario files end in {SUFFIX}")
            if name.endswith(SUFFIX) and not name.endswith(KNOWN_SUFFIX):
                files.append(Path(where, name))
    return files


def load(path: Path | str, *, is_limited: bool = True) -> Trace:
    """Return a scenario file's trace; `is_limited`: refuse a trace beyond the cost limits.

    Raises:
        ScenarioError: the file cannot be read, is not strict YAML, or is not a valid trace.
    """
    return loads(_text(path), str(path), is_limited=is_limited)


def line_of(path: Path | str, where: Where) -> int:
    """Return the line number of the value at a path, or of its nearest parent in the file."""
    _, lines = read(_text(path), str(path))
    return next(lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in lines)


def _text(path: Path | str) -> str:
    try:
        content = read_file(path, BYTES_MAX)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}; name a readable scenario file (*{SUFFIX})") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        seen = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise ScenarioError(f"{path}:{line}: {seen}; scenario files are UTF-8 text") from error
    return text


def run_on(path: Path | str) -> RunOn:
    """Return the `run_on` of a scenario file: engine, device and options that found the trace.

    Raises:
        ScenarioError: as `load`.
    """
    return _file(_text(path), str(path), False).run_on


def loads(text: str, name: str, *, is_limited: bool = True) -> Trace:
    """Return the trace of a YAML text; messages use `name` as the file name.

    Raises:
        ScenarioError: the text is not strict YAML, or is not a valid trace.
    """
    return _file(text, name, is_limited).trace()


def _file(text: str, name: str, is_limited: bool) -> ScenarioFile:
    _check_size(len(text), name)
    more = 0
    data, lines = read(text, name, NODES_MAX if is_limited else None)
    try:
        trace = ScenarioFile.model_validate(data, context={"problems_listed": True})
    except ValidationError as error:
        complaints, more = validation_complaints(error, data, lines)
    else:
        found = problems(trace) or (over_limits(trace) if is_limited else [])
        complaints = [problem_complaint(problem, lines) for problem in found]
        if not complaints:
            return trace
    first, *others = sorted(complaints, key=lambda complaint: complaint.rank)
    more += len(others)
    rest = f" (and {more} more)" if more else ""
    raise ScenarioError(f"{name}:{first.line}: {first.message}{rest}")


def _check_size(size: int, name: str) -> None:
    if size > BYTES_MAX:
        raise ScenarioError(f"{name}: more than {BYTES_MAX} bytes; a scenario file has at most {BYTES_MAX}")


def dumps(trace: Trace, run_on: RunOn = NOT_RECORDED) -> str:
    """Return a trace as YAML, one event per line, without default values.

    `loads` of the text returns an equal trace.
    """
    recorded = run_on.recorded()
    data = ({"run_on": recorded} if recorded else {}) | trace.model_dump(exclude_defaults=True)
    data["events"] = [_event_data(event.do, item) for event, item in zip(trace.events, data["events"], strict=True)]
    return "".join(_block(key, value) for key, value in data.items())


def _event_data(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    head: dict[str, Any] = {key: item.pop(key) for key in ("tick", "at") if key in item}
    return {**head, "do": kind, **item}


def _block(key: str, value: Any) -> str:
    if isinstance(value, dict) and value:
        return f"{key}:\n" + "".join(f"  {_flow(name)}: {_flow(item)}\n" for name, item in value.items())
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return f"{key}:\n" + "".join(f"  - {_flow(item)}\n" for item in value)
    return f"{key}: {_flow(value)}\n"


def _flow(value: Any) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{_flow(key)}: {_flow(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_flow, value))}]"
        case str():
            is_plain = _PLAIN_WORD.fullmatch(value) and value.lower() not in OLD_BOOLEANS | {"null"}
            return value if is_plain else json.dumps(value)
        case bool() | int() | float():
            return json.dumps(value)
    raise TypeError(f"{type(value).__name__} has no YAML form here")


def comment(lines: list[str]) -> str:
    """Return the lines as a YAML comment, with hidden characters escaped."""
    parts = (part[:COMMENT_LINE_MAX] for line in lines for part in line.splitlines())
    return "".join(f"# {visible_line(part)}\n" for part in parts)
