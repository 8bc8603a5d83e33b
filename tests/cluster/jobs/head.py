"""A Ray head with a job server, started by `ray_configs/local/head.sh`, and commands for it."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import randbelow

from tests.cluster.processes import descendants

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "ray_configs" / "local" / "head.sh"
START_SECONDS = 300.0
STARTS_MAX = 5
COMMAND_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Head:
    """A running head; `gcs` is its address for drivers, `pid` the process id of the script."""

    address: str
    gcs: str
    home: Path
    pid: int

    @property
    def environment(self) -> dict[str, str]:
        """Return a user's environment variables, with the token of this head."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SPECSTORM_"))}
        own = {"HOME": str(self.home), "RAY_API_SERVER_ADDRESS": self.address, "PYTHONPATH": str(ROOT)}
        return {**kept, **own}

    def start(self, here: Path, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command of specstorm in a folder."""
        return subprocess.Popen(
            [sys.executable, "-m", "cluster", *arguments],
            cwd=here,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, here: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of specstorm in a folder to its end."""
        return ended(self.start(here, *arguments, **variables))


def ended(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    """Wait for a command to end; return its result."""
    out, err = process.communicate(timeout=COMMAND_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextmanager
def running_head() -> Iterator[Head]:
    """Start a head on free ports with its own home folder; finally stop all of its processes.

    Ray ends a node whose agent has not started within 15 s, a span that nothing changes: on a machine that busy the
    head is started again.
    """
    with ExitStack() as stack:
        for _ in range(STARTS_MAX - 1):
            with suppress(_HeadEnded):
                head = stack.enter_context(_head())
                break
        else:
            head = stack.enter_context(_head())
        yield head


@contextmanager
def _head() -> Iterator[Head]:
    """Start one head.

    Raises:
        _HeadEnded: it ended before its node's agent had started.
    """
    # Paths of sockets are short: not every temporary folder of a test will do.
    with tempfile.TemporaryDirectory(prefix="ss-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        gcs, dashboard, client = free_ports(3)
        options = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
        options += ["--num-cpus=2", "--dashboard-agent-grpc-port=0"]
        options += ["--metrics-export-port=0", "--object-store-memory=100000000", f"--temp-dir={home / 'ray'}"]
        head = Head(f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{gcs}", home, 0)
        with (home / "head.log").open("w") as log:
            process = subprocess.Popen(
                [str(SCRIPT), *options], env=head.environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait_for(f"{head.address}/api/gcs_healthz", process, home)
            yield replace(head, pid=process.pid)
        finally:
            below = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                # On a busy machine Ray's own processes may take longer to end.
                process.kill()
                process.wait()
            finally:
                for pid in below:
                    kill(pid)


class _HeadEnded(Exception):
    """Error: the head ended by itself; the message is its log."""


def wait_for(url: str, process: "subprocess.Popen[bytes]", home: Path) -> None:
    """Wait until a head answers and its node's agent has written its ports.

    Raises:
        _HeadEnded: the head ended before.
    """
    log, end = home / "head.log", time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise _HeadEnded(log.read_text())
        try:
            with urllib.request.urlopen(url, timeout=5):
                if any((home / "ray" / "session_latest").glob("dashboard_agent_listen_port_*")):
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"no head within {START_SECONDS:g} s: {log.read_text()}")


def free_ports(number: int) -> list[int]:
    """Return free ports that neither the system nor Ray assigns automatically.

    Between this call and the start of the head's processes, the system may assign any port of its own range (32768 and
    up by default) to a connection, and Ray any of 10002 to 19999 to a worker.
    """
    found: set[int] = set()
    while len(found) < number:
        port = 20_000 + randbelow(12_768)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.add(port)
    return sorted(found)


def kill(pid: int) -> None:
    """Kill a process if its command line is one of Ray or Specstorm."""
    try:
        if re.search(rb"ray|specstorm|cluster", Path(f"/proc/{pid}/cmdline").read_bytes()):
            os.kill(pid, signal.SIGKILL)
    except OSError:
        return
