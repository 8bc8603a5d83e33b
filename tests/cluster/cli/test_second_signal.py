"""A second signal ends a command in every phase, even if exceptions do not."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.cli import main as program
from cluster.dispatch.origin import ROOT
from tests.cluster.cli.test_commands import SECONDS_MAX, wait_for

HUNT = ("hunt", "--traces", "12", "--seed", "1", "--profile", "labelled", "--ray", "off", "--engine", "black_box")


def started(tmp_path: Path, phase: str, *arguments: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster.cli.stuck_engine", phase, *arguments]
    out = str(tmp_path / "out")
    return subprocess.Popen([*command, "--out", out], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it has ended without {text!r}")


@pytest.mark.parametrize(
    ("phase", "first"),
    [
        ("confirmation", signal.SIGTERM),
        ("interpreted kernels", signal.SIGINT),
        ("shrinking", signal.SIGINT),
        ("start of an engine", signal.SIGINT),
    ],
)
def test_second_signal_ends_a_hunt_that_hangs(tmp_path: Path, phase: str, first: signal.Signals) -> None:
    process = started(tmp_path, phase, *HUNT)
    wait_for_line(process, "stuck")
    process.send_signal(first)
    wait_for_line(process, "a second signal stops it at once")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 128 + signal.SIGINT
    assert "ended at once by a second signal" in err or phase == "start of an engine"


def test_second_signal_ends_a_hunt_in_which_native_code_keeps_the_interpreter_lock(tmp_path: Path) -> None:
    process = started(tmp_path, "native code", *HUNT)
    wait_for_line(process, "stuck")
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "a second signal stops it at once")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == -signal.SIGALRM


def test_second_signal_ends_a_hunt_whose_report_nobody_reads(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b" " * 4096)
    process = started(tmp_path, "no phase", *HUNT, stdout=writer)
    os.close(writer)
    wait_for(lambda: "pipe" in Path(f"/proc/{process.pid}/wchan").read_text(), process)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 128 + signal.SIGINT
    os.close(reader)


def test_second_signal_while_the_first_is_handled_gives_the_exit_code_of_a_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(arguments: list[str], *, is_program: bool) -> int:
        raise KeyboardInterrupt

    codes: list[int] = []
    monkeypatch.setattr(program, "run", interrupted)
    monkeypatch.setattr(os, "_exit", codes.append)
    with pytest.raises(SystemExit):
        program.main()
    assert codes == [128 + signal.SIGINT]
