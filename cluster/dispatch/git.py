"""Git commands on a checkout whose configuration must not start programs.

The `.git/config` of a foreign checkout can name programs: hooks, a monitor of the file system, drivers of filters and
differences, a transport, a checker of signatures. All of them are switched off.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "diff.external": "",
    "diff.autoRefreshIndex": "false",
    "log.showSignature": "false",
    "submodule.recurse": "false",
}
# A checkout may define any number of drivers by name. `_OFF` has the value that switches a setting off, if not empty.
_DRIVERS = r"^(filter|diff)\..*\.(clean|smudge|process|required|command|textconv)$"
_OFF = {"required": "false"}
# Options of subcommands that compare files: start no driver, and no git in a submodule with its own settings.
_PLAIN = {
    "diff": ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all"),
    "log": ("--no-ext-diff", "--no-textconv"),
    "status": ("--ignore-submodules=all",),
}
# Git must not prompt or fetch, must answer in English, and must not take a lock that other processes would wait for.
_OWN = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}


def git(folder: Path, subcommand: str, *words: str, seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """Run a git command in a folder that may only read: no writes, locks or fetches.

    Raises:
        OSError: git cannot be started.
        TimeoutExpired: it does not answer in time.
    """
    settings = {**_SETTINGS, **dict.fromkeys(_drivers(folder, seconds), "")}
    settings |= {name: _OFF[last] for name in settings if (last := name.rpartition(".")[2]) in _OFF}
    return _run(folder, (subcommand, *_PLAIN.get(subcommand, ()), *words), seconds, settings)


def _drivers(folder: Path, seconds: float) -> Iterator[str]:
    """Yield the settings of a checkout's configuration that would make git run programs."""
    question = ("config", "--null", "--name-only", "--get-regexp", _DRIVERS)
    listed = _run(folder, question, seconds, _SETTINGS).stdout
    yield from (name for name in os.fsdecode(listed).split("\0") if name)


def _run(
    folder: Path, words: tuple[str, ...], seconds: float, settings: dict[str, str]
) -> "subprocess.CompletedProcess[bytes]":
    # Variables of git may point to another repository or to programs. The settings override those of the checkout; they
    # are no -c options, because such an option would split a name at an equals sign.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _OWN
    environment["GIT_CONFIG_COUNT"] = str(len(settings))
    for index, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    asked = ("git", "-C", str(folder), *words)
    return subprocess.run(
        asked, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds, env=environment
    )
