"""Provenance of results: command, code version, time and machine of their process."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from secrets import token_hex
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from cluster.dispatch.git import git
from cluster.dispatch.job import build
from cluster.dispatch.origin import ROOT
from scenarios.spec import Value
from workers.record.names import Count

LIBRARIES = ("numpy", "ray", "torch", "triton")
GIT_SECONDS_MAX = 5.0
NOTIFY = "--notify"
# Scheme and host; user and password before the host, and the path after it, are left out.
_ADDRESS = re.compile(r"(https?://)(?:[^/\s@]*@)?([^/\s?#]+)[^\s'\"]*")


class PlannedWork(Value):
    """Work that a process will judge.

    Without all of it a campaign is not judged completely.

    `scenarios` has the job keys of each scenario, by its name; `trials` the keys of trials of faults; `traces` is the
    least number of traces of a hunt, None for a hunt that ends with its time.
    """

    scenarios: dict[str, tuple[str, ...]] = {}
    trials: tuple[str, ...] = ()
    traces: Count | None = None


def _is_stamp(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time with its zone, such as 2027-01-31T00:00:00+00:00")
    return text


# A time in ISO format with its time zone.
Stamp: TypeAlias = Annotated[str, AfterValidator(_is_stamp)]


class Run(Value):
    """One process that writes a campaign; `run` is its name.

    `commit` is the commit of the checkout with this code, followed by `+` if files were edited; empty without a
    checkout. `engine` is the tested engine; empty if that was not recorded. `ended` is None for a running process, or
    if its end could not be recorded.
    """

    run: str
    begun: Stamp
    command: str
    seed: int | None
    specstorm: str
    commit: str
    python: str
    libraries: dict[str, str]
    system: str
    processors: int
    memory_bytes: int
    ended: Stamp | None = None
    engine: str = ""
    planned: PlannedWork = PlannedWork()

    @property
    def seconds(self) -> float | None:
        """Return the duration in seconds, None without a recorded end."""
        if self.ended is None:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.begun)).total_seconds()


def now() -> str:
    """Return the current time as an ISO timestamp."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def after(begun: str, seconds: float) -> str:
    """Return the time stamp `seconds` after `begun`, independent of the current clock."""
    assert seconds >= 0, f"{seconds} seconds after {begun}"
    return (datetime.fromisoformat(begun) + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def this_run(seed: int | None = None, engine: str = "") -> Run:
    """Return a record of this process: command, code version, commit, machine."""
    return Run(
        run=token_hex(8),
        begun=now(),
        command=shlex.join(["specstorm", *_without_secrets(sys.argv[1:])]),
        seed=seed,
        specstorm=build(),
        commit=commit(),
        python=platform.python_version(),
        libraries=_versions(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processors=len(os.sched_getaffinity(0)),
        engine=engine,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _without_secrets(words: list[str]) -> Iterator[str]:
    """Yield a command's words, with notification URLs shortened to their hosts.

    A notification address is cut to its host, as the rest may be a secret.
    """
    for before, word in pairwise(["", *words]):
        is_address = before == NOTIFY or word.startswith(f"{NOTIFY}=")
        yield without_secret(word) if is_address else word


def without_secret(text: str) -> str:
    """Return a text with each URL shortened to its host."""
    return _ADDRESS.sub(r"\1\2/...", text)


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def commit() -> str:
    """Return the commit of our own checkout.

    Empty for an installed distribution, even inside another checkout.
    """
    if not (ROOT / ".git").exists():
        return ""
    answers = []
    for question in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        try:
            done = git(ROOT, *question, seconds=GIT_SECONDS_MAX)
        except (OSError, subprocess.SubprocessError):
            return ""
        if done.returncode:
            return ""
        answers.append(done.stdout.decode(errors="replace").strip())
    return answers[0] + ("+" if answers[1] else "")
