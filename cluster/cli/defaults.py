"""Defaults of options from `[tool.specstorm]` in the nearest pyproject.toml; the command line overrides them."""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from cluster.cli.inputs import InputError

TABLE = "[tool.specstorm]"


def default_map(app: typer.Typer, here: Path) -> dict[str, Any]:
    """Return the defaults by command and parameter; none where no file from a folder upwards has the table.

    A key of the table itself is a default of every command that has such an option.

    Raises:
        InputError: the file cannot be read, or a key is no command and no option.
    """
    file = _nearest(here)
    table = None if file is None else _table(file)
    return {} if table is None else _defaults(table, get_command(app), str(file))


def place_of(error: Exception, here: Path) -> str:
    """Return the file and the table whose default an error of usage is about, empty if it is about what was typed."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    source = None if context is None or parameter is None else context.get_parameter_source(parameter.name)
    return f"{_nearest(here)}: {TABLE}: " if source is not None and source.name == "DEFAULT_MAP" else ""


def _nearest(here: Path) -> Path | None:
    files = (folder / "pyproject.toml" for folder in (here, *here.parents))
    return next((file for file in files if file.is_file()), None)


def _table(file: Path) -> Mapping[str, Any] | None:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("specstorm")
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    if table is not None and not isinstance(table, dict):
        raise InputError(f"{file}: tool.specstorm is {table!r}; a table of options is wanted")
    return table


def _defaults(table: Mapping[str, Any], group: Any, file: str) -> dict[str, Any]:
    known = {name: _options(command) for name, command in group.commands.items()}
    shared = {name for options in known.values() for name in options}
    found: dict[str, Any] = {name: {} for name in known}
    for key, value in table.items():
        if key in known and isinstance(value, dict):
            for option, default in value.items():
                if option not in known[key]:
                    raise InputError(f"{file}: {TABLE} {key}: {_unknown(option, known[key])}")
                found[key][known[key][option]] = default
        elif key in shared:
            for command, options in known.items():
                if key in options:
                    found[command].setdefault(options[key], value)
        else:
            raise InputError(f"{file}: {TABLE}: {_unknown(key, [*known, *shared])}")
    return found


def _options(command: Any) -> dict[str, str]:
    """Return the parameter of each long option of a command, by the option's name without dashes."""
    named = [(option, parameter.name) for parameter in command.params for option in parameter.opts]
    return {option.removeprefix("--"): name for option, name in named if option.startswith("--")}


def _unknown(key: str, allowed: Any) -> str:
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown key {key!r}; {hint}allowed are {', '.join(sorted(set(allowed)))}"
