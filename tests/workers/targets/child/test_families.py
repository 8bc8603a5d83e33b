"""All descendants of an engine's process end with it, and its end is noticed at once."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.spec import Value
from workers.targets.child.answers import Nothing
from workers.targets.child.process import EngineProcess, Launch
from workers.targets.target import EngineFailed

ROOT = Path(__file__).resolve().parents[4]
SECONDS_MAX = 30.0
# Starts five descendants: a child, a child that ignores SIGTERM, a stopped child, a daemon, and a program in a session
# of its own with an empty environment. All of them hold the pipes of the protocol.
ENGINE = """
import json, os, signal, sys, tempfile, time

def say(number, answer):
    print(json.dumps({"number": number, "answer": answer}), flush=True)

def sleep():
    while True:
        time.sleep(60)

def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    sleep()

def stopped():
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)

def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    deaf()

def program():
    os.setsid()
    ready()
    os.set_inheritable(1, True)
    os.execve("/bin/sleep", ["sleep", "600"], {})

def ready():
    os.write(writer, b"%d\\n" % os.getpid())

say(0, {"version": "1"})
for line in sys.stdin:
    question = json.loads(line)
    number = question["number"]
    match question["do"]:
        case "start":
            reader, writer = os.pipe()
            acts = [lambda: (ready(), sleep()), deaf, stopped, daemon, program]
            for act in acts:
                if not os.fork():
                    act()
            with os.fdopen(reader) as pids:
                say(number, {"pids": [int(pids.readline()) for _ in acts], "folder": tempfile.gettempdir()})
        case "exit": os._exit(3)
        case "kill the parent": os.kill(os.getppid(), signal.SIGKILL); sleep()
        case "hang": sleep()
"""


class Started(Value):
    """Descendants that an engine's process has started, and its temporary folder."""

    pids: tuple[int, ...]
    folder: str


def launched() -> EngineProcess:
    return EngineProcess(Launch((sys.executable, "-S", "-E", "-c", ENGINE), {}, ROOT))


def wait_for_ends(pids: tuple[int, ...]) -> None:
    """Wait until all processes have ended."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], SECONDS_MAX)[0], f"process {pid} is alive"
        finally:
            os.close(descriptor)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_descendants_end_when_the_process_is_killed() -> None:
    child = launched()
    started = child.ask({"do": "start"}, Started)
    child.kill()
    wait_for_ends((child.pid, *started.pids))


def test_exit_is_noticed_while_descendants_hold_the_pipes() -> None:
    child = launched()
    started = child.ask({"do": "start"}, Started)
    with pytest.raises(EngineFailed, match="died with exit code 3"):
        child.ask({"do": "exit"}, Nothing)
    wait_for_ends(started.pids)
    child.kill()


def test_descendants_end_when_the_process_kills_its_parent() -> None:
    child = launched()
    started = child.ask({"do": "start"}, Started)
    with pytest.raises(EngineFailed, match="died of SIGKILL"):
        child.ask({"do": "kill the parent"}, Nothing)
    wait_for_ends((child.pid, *started.pids))
    child.kill()


def test_descendants_end_when_the_outer_warden_is_killed() -> None:
    child = launched()
    started = child.ask({"do": "start"}, Started)
    os.kill(parent_of(parent_of(child.pid)), signal.SIGKILL)
    wait_for_ends((child.pid, *started.pids))
    assert not child.is_alive()
    child.kill()


def test_stopped_warden_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.targets.child.process._END_SECONDS", 0.2)
    child = launched()
    started = child.ask({"do": "start"}, Started)
    inner = parent_of(child.pid)
    outer = parent_of(inner)
    os.kill(outer, signal.SIGSTOP)
    child.kill()
    wait_for_ends((inner, child.pid, *started.pids))


DRIVER = """
import os, signal, sys
from tests.workers.targets.child.test_families import Started, launched
child = launched()
started = child.ask({"do": "start"}, Started)
print(child.pid, *started.pids, started.folder, flush=True)
match sys.argv[1]:
    case "hang":
        child.ask({"do": "hang"}, Started)
    case "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["ends", "SIGKILL"])
def test_descendants_end_and_files_are_removed_when_the_driver_ends(how: str) -> None:
    ended = subprocess.run([sys.executable, "-c", DRIVER, how], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    assert ended.returncode == (-signal.SIGKILL if how == "SIGKILL" else 0)
    *pids, folder = ended.stdout.decode().split()
    wait_for_ends(tuple(map(int, pids)))
    wardens = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if folder in _text(path)]
    wait_for_ends(tuple(wardens))
    assert not Path(folder).exists()


def test_terminal_signal_does_not_reach_the_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, "hang"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as driver:
        assert driver.stdout is not None
        pid, *pids, _ = driver.stdout.readline().decode().split()
        assert os.getsid(int(pid)) not in (os.getsid(driver.pid), driver.pid)
        os.killpg(driver.pid, signal.SIGINT)
        driver.communicate(timeout=SECONDS_MAX)
        assert driver.returncode == -signal.SIGINT
    wait_for_ends((int(pid), *map(int, pids)))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
