"""The engine of `adder_child`, with one hostile act: at its start, or in its second step.

The arguments are the time (`start` or `step`) and the act.
"""

import json
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from scenarios.spec import EngineSpec
from tests.workers.targets.child.adder_child import Adders, AdderSession
from workers.targets.child.answers import Delivery
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.main import serve

WHEN, WHAT = sys.argv[1:]


class Unreadable(Exception):
    """Exception that raises a ValueError when it is converted to text."""

    def __str__(self) -> str:
        raise ValueError("no text")


def hang() -> NoReturn:
    while True:
        signal.pause()


def print_for_ever() -> NoReturn:
    while True:
        print("x" * 1000)


def replace_modules() -> None:
    """Replace or remove modules and streams that the process's main loop uses."""
    json.dumps = json.loads = None  # type: ignore[assignment]
    json.JSONEncoder = None  # type: ignore[misc, assignment]
    sys.modules["json"] = None  # type: ignore[assignment]
    sys.stdin = sys.stdout = None


def move() -> None:
    """Change the working directory and the environment."""
    os.chdir("/")
    os.environ.clear()
    os.environ["TMPDIR"] = "/"


def ignore_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)


def recurse() -> None:
    recurse()


def overflow() -> None:
    """Overflow the C stack."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(1 << 30)
    nested: list[object] = []
    for _ in range(1 << 17):
        nested = [nested]
    repr(nested)


def fill_memory() -> None:
    """Allocate memory until a low limit is reached."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    kept = []
    while True:
        kept.append(bytearray(1 << 26))


def write_to_pipes() -> None:
    """Write to every open pipe except stdout and stderr."""
    for descriptor in range(3, 100):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"{}\n")


def raise_from_itself() -> None:
    error = RuntimeError("no")
    raise error from error


def raise_in_an_endless_file() -> None:
    exec(compile("raise RuntimeError('no')", "/dev/zero", "exec"))


def raised(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


ACTS: dict[str, Callable[[], object]] = {
    "hangs": hang,
    "prints for ever": print_for_ever,
    "replaces modules": replace_modules,
    "moves": move,
    "ignores signals": ignore_signals,
    "raises SystemExit": raised(SystemExit(3)),
    "raises KeyboardInterrupt": raised(KeyboardInterrupt()),
    "exits": lambda: os._exit(0),
    "aborts": lambda: os.kill(os.getpid(), signal.SIGABRT),
    "kills its parent": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "kills its group": lambda: os.killpg(0, signal.SIGKILL),
    "recurses": recurse,
    "overflows the stack": overflow,
    "fills memory": fill_memory,
    "forks": os.fork,
    "closes descriptors": lambda: os.closerange(3, 1024),
    "closes its input": lambda: os.close(0),
    "writes to the pipe": write_to_pipes,
    "raises from itself": raise_from_itself,
    "raises in an endless file": raise_in_an_endless_file,
    "raises without a text": raised(Unreadable()),
    "raises a long text": raised(RuntimeError("x" * (1 << 24))),
    "raises half a character": raised(RuntimeError("\ud800")),
}


class HostileSession(AdderSession):
    """Session that performs the act in its second step."""

    num_steps = 0

    def step(self) -> Sequence[Delivery]:
        self.num_steps += 1
        if WHEN == "step" and self.num_steps == 2:
            ACTS[WHAT]()
        return super().step()


class HostileEngines(Adders):
    """Engines with hostile sessions."""

    def open(self, spec: EngineSpec, observed: bool) -> AdderSession:
        return HostileSession(spec, False)


def start(arguments: Sequence[str]) -> tuple[Host, str]:
    if WHEN == "start":
        ACTS[WHAT]()
    return Host(HostileEngines(False)), "1"


if __name__ == "__main__":
    serve(start)
