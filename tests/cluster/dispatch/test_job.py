"""`ray job submit` runs the suite on a cluster; the head belongs to this test and only its processes are ended."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.dispatch.origin import ROOT
from tests.cluster.processes import descendants, listening

START_SECONDS = 300.0
JOB_SECONDS = 600.0
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Head:
    """A running cluster of one node: where its job server is, what its clients need, its first process."""

    jobs: str
    environment: dict[str, str]
    process: int


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(url: str, token: str) -> bool:
    """Whether the job server answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Start a head in a session of its own and end exactly that session."""
    # The paths of Ray's sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="ss-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        token = Path(folder, "token")
        token.touch(mode=0o600)
        token.write_text("5" * 64)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment |= {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
        gcs, dashboard, agent, agent_grpc, client = free_ports(5)
        command = [str(BIN / "ray"), "start", "--head", "--block", "--num-cpus=2", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", f"--temp-dir={folder}"]
        command += [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
        command += [f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={agent_grpc}"]
        command += ["--object-store-memory=200000000"]
        with open(Path(folder, "head.log"), "wb") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )
        try:
            jobs = f"http://127.0.0.1:{dashboard}"
            end = time.monotonic() + START_SECONDS
            while not answers(f"{jobs}/api/jobs/", token.read_text()):
                assert process.poll() is None, Path(folder, "head.log").read_text()
                assert time.monotonic() < end, Path(folder, "head.log").read_text()
                time.sleep(0.2)
            yield Head(jobs, environment, process.pid)
        finally:
            # A job's driver leads a group of its own, so the group of the head alone would leave it behind.
            below = descendants(process.pid)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
            for pid in below:
                end_process(pid)


def end_process(pid: int) -> None:
    """End one process that this test has started, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def submit(head: Head, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Submit a command of ours as a job and wait for its end."""
    command = [str(BIN / "ray"), "job", "submit", "--address", head.jobs, "--working-dir", str(ROOT)]
    command += ["--", "python", "-m", "cluster", *arguments]
    return subprocess.run(
        command, env=head.environment, cwd=ROOT, capture_output=True, text=True, timeout=JOB_SECONDS, check=False
    )


def test_a_submitted_suite_agrees_and_reports(head: Head) -> None:
    names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "scenarios" / "smoke").glob("a*.yaml"))]
    assert len(names) >= 3
    done = submit(head, "run", *names, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    text = done.stdout[done.stdout.index('{\n  "specstorm"') :]
    report, _ = json.JSONDecoder().raw_decode(text)
    assert [each["scenario"] for each in report["scenarios"]] == names
    assert report["summary"] == {"agreed": len(names)}


def test_a_submitted_suite_with_bad_input_fails(head: Head) -> None:
    done = submit(head, "run", "scenarios/no-such-folder")
    assert done.returncode == 1
    assert "no such file" in done.stdout + done.stderr


def test_the_head_listens_on_loopback_only(head: Head) -> None:
    sockets = listening(descendants(head.process) | {head.process})
    assert len(sockets) >= 4, "a head without sockets was looked at"
    assert [name for name, loopback in sockets.items() if not loopback] == []
