"""Defaults of options from `[tool.specstorm]` in pyproject.toml.

The command line overrides them.

The nearest file outside any campaign is used, so files fetched from a cluster have no effect.
"""

import difflib
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from cluster.cli.inputs import InputError
from scenarios.input_file import read_file

TABLE = "[tool.specstorm]"
FILE = "pyproject.toml"
SHOWN_MAX = 60
BYTES_MAX = 4 << 20
# Parameters that select programs: an engine, its releases and commits, a notification command, a cluster.
PROGRAMS = frozenset(("engine_home", "engine_path", "folder", "repository", "notify", "ray", "address"))
# Values of `ray` that name no cluster.
_OWN_RAY = ("auto", "local", "off")
# Files that distinguish a campaign from other folders: one begun here, one being written, one fetched without a store.
_CAMPAIGN = (("campaign.sqlite",), ("campaign.lock",), ("job.json", "artefacts"))


def default_map(app: typer.Typer, here: Path) -> dict[str, Any]:
    """Return the defaults by command and parameter; empty without such a table.

    A key at the top of the table is a default of every command with such an option.

    Raises:
        InputError: the file cannot be read, a key is neither command nor option, or a key selects a program and the
            file does not belong to the user alone.
    """
    file = defaults_file(here)
    table = None if file is None else _table(file)
    if file is None or table is None:
        return {}
    return _defaults(table, get_command(app), str(file), may_select_programs(file, here))


def defaults_file(here: Path) -> Path | None:
    """Return the nearest `pyproject.toml` in this folder or above, outside any campaign."""
    outside = _outside(here)
    files = (folder / FILE for folder in (outside, *outside.parents))
    return next((file for file in files if file.is_file()), None)


def may_select_programs(file: Path, here: Path) -> bool:
    """Return whether a defaults file may set options that name programs to run.

    It may if it belongs to the user alone and is in or above the folder's git repository.
    """
    outside = _outside(here)
    state = file.stat()
    is_own = state.st_uid == os.geteuid() and not state.st_mode & stat.S_IWOTH
    # The search for the file went upwards from that folder: it is in or above the repository, if any.
    return is_own and any(os.path.lexists(folder / ".git") for folder in (outside, *outside.parents))


def place_of(error: Exception, here: Path) -> str:
    """Return the file and table of the default that caused a usage error, as `FILE: TABLE: `.

    "" for typed values.
    """
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    source = None if context is None or parameter is None else context.get_parameter_source(parameter.name)
    return f"{defaults_file(here)}: {TABLE}: " if source is not None and source.name == "DEFAULT_MAP" else ""


def _outside(here: Path) -> Path:
    """Return the nearest folder, from `here` upwards, that is not inside a campaign."""
    folders = (here, *here.parents)
    inside = [folder for folder in folders if any(all((folder / n).exists() for n in names) for names in _CAMPAIGN)]
    return inside[-1].parent if inside else here


def _table(file: Path) -> Mapping[str, Any] | None:
    try:
        values = tomllib.loads(read_file(file, BYTES_MAX).decode("utf-8"))
    except RecursionError as error:
        raise InputError(f"{file}: cannot be read: nested too deeply; expected a table of options") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: cannot be read: {why}") from error
    tools = values.get("tool", {})
    table = tools.get("specstorm") if isinstance(tools, dict) else tools
    if table is not None and not isinstance(table, dict):
        name = "tool.specstorm" if isinstance(tools, dict) else "tool"
        raise InputError(f"{file}: {name} is {short_text(table)}; expected a table of options")
    return table


def short_text(value: object) -> str:
    """Return a value as a short text for an error message."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(text):,} characters)"


def _defaults(table: Mapping[str, Any], group: Any, file: str, may_name: bool) -> dict[str, Any]:
    def check(key: str, parameter: str, value: object) -> None:
        if parameter in PROGRAMS and not may_name and not (parameter == "ray" and value in _OWN_RAY):
            how = "such a file belongs to you alone, and is in or above the git repository of the working directory"
            raise InputError(f"{file}: {TABLE}: {key} selects a program to run; {how}: type --{key} instead")

    known = {name: _options(command) for name, command in group.commands.items()}
    shared = {name for options in known.values() for name in options}
    found: dict[str, Any] = {name: {} for name in known}
    for key, value in table.items():
        if key in known and isinstance(value, dict):
            for option, default in value.items():
                if option not in known[key]:
                    raise InputError(f"{file}: {TABLE} {key}: {_unknown(option, known[key])}")
                check(option, known[key][option], default)
                found[key][known[key][option]] = default
        elif key in shared:
            for command, options in known.items():
                if key in options:
                    check(key, options[key], value)
                    found[command].setdefault(options[key], value)
        else:
            raise InputError(f"{file}: {TABLE}: {_unknown(key, [*known, *shared])}")
    return found


def _options(command: Any) -> dict[str, str]:
    """Map each long option of a command, without dashes, to its parameter."""
    named = [(option, parameter.name) for parameter in command.params for option in parameter.opts]
    return {option.removeprefix("--"): name for option, name in named if option.startswith("--")}


def _unknown(key: str, allowed: Any) -> str:
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown key {key!r}; {hint}allowed are {', '.join(sorted(set(allowed)))}"
