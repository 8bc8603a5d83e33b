"""Notification after a night: send its JSON to a command or a URL."""

import shlex
import shutil
import subprocess
from http.client import HTTPException
from typing import Annotated
from urllib.error import URLError
from urllib.request import Request, urlopen

import typer

from cluster.cli.inputs import InputError
from cluster.reports.terminal import say
from cluster.storage.provenance import without_secret

SECONDS_MAX = 60.0
_URLS = ("http://", "https://")
# At most this much of a command's stderr is repeated.
_SAID_MAX = 200

Notify = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND|URL",
        help="Send the night's JSON to a command (stdin) or a URL (POST); does not change the exit code.",
    ),
]


def check_notify(target: str | None) -> None:
    """Raise if `--notify` is neither a usable command nor a URL.

    Raises:
        InputError: it is not a command of this machine.
    """
    if target is None or target.startswith(_URLS):
        return
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise InputError(f"--notify is {target!r}, which is not a valid command line: {error}") from error
    if not words or shutil.which(words[0]) is None:
        named = words[0] if words else target
        raise InputError(f"--notify: command {named!r} was not found; give a command, or an http or https URL")


def notify_of(target: str | None, document: str) -> None:
    """Send a document to a command or URL; a failure is only printed."""
    if target is None:
        return
    problem = _post_failure(target, document) if target.startswith(_URLS) else _command_failure(target, document)
    if problem:
        say(f"--notify {without_secret(target)}: {problem}")


def _post_failure(url: str, document: str) -> str:
    """Post a document to a URL; return the error, or "" if it succeeded."""
    try:
        request = Request(url, document.encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=SECONDS_MAX):
            return ""
    except URLError as error:
        return f"not posted: {error}"
    except (OSError, HTTPException, ValueError) as error:
        return f"not posted: {type(error).__name__}: {error}"


def _command_failure(command: str, document: str) -> str:
    """Pass a document to a command on stdin; return its error, or "" if it succeeded."""
    try:
        done = subprocess.run(
            shlex.split(command), input=document.encode(), capture_output=True, timeout=SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip()[-_SAID_MAX:]
    return f"exited with {done.returncode}{f': {said}' if said else ''}" if done.returncode else ""
