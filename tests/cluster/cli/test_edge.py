"""Failures around a command: closed streams, full disks, removed folders, wrong tokens.

Each ends in one line and a documented code, and nothing that was computed is lost.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch import reach
from cluster.dispatch.host import ReachError
from cluster.dispatch.origin import ROOT
from cluster.dispatch.pool import RayCluster
from cluster.reports.terminal import GuardedStream
from tests.cluster.cli.test_commands import FOUND, SECONDS_MAX, num_results, specstorm

FULL = Path("/dev/full")
TINY = """
spec: {{max_num_batched_tokens: 8, max_num_seqs: 2, vocab_size: 16}}
seed: {seed}
events:
- {{tick: 0, do: submit, request: r0, prompt: {{tokens: 2}}, max_tokens: 4}}
- {{tick: 1, do: submit, request: r1, prompt: {{tokens: 11}}, max_tokens: 2}}
"""


def scenarios(folder: Path, count: int) -> None:
    """Write scenarios that take no time to judge."""
    (folder / "scn").mkdir()
    for seed in range(count):
        (folder / "scn" / f"s{seed}.yaml").write_text(TINY.format(seed=seed))


def shell(folder: Path, line: str, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line of bash with `specstorm` as the program; call `before` in its process first."""
    line = line.replace("specstorm", f"{sys.executable} -m cluster")
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        preexec_fn=before,
    )


def test_a_reader_that_leaves_changes_no_exit_code_and_causes_no_message(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    run = f"specstorm run scn --ray off --out out --fault {FOUND} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = shell(tmp_path, run)
    assert (done.returncode, done.stderr) == (1, "")
    assert num_results(tmp_path / "out") == 1
    done = shell(tmp_path, "specstorm faults list | head -1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (0, "")
    assert shell(tmp_path, "specstorm faults list >&-").returncode == 0
    assert shell(tmp_path, "specstorm run absent >&- 2>&-").returncode == 2


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_a_report_that_cannot_be_printed_is_one_line_and_never_passes_for_success(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    told = "specstorm: stdout: No space left on device; not everything could be printed\n"
    done = shell(tmp_path, "specstorm faults list > /dev/full")
    assert (done.returncode, done.stderr) == (2, told)
    done = shell(tmp_path, f"specstorm run scn --ray off --out out --fault {FOUND} > /dev/full")
    assert (done.returncode, done.stderr) == (1, told)
    assert num_results(tmp_path / "out") == 1


def test_a_guarded_stream_keeps_the_first_error_and_drops_what_follows(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        stream = GuardedStream(file)
        assert stream.write("a") == 1
        stream.flush()
    assert stream.write("b") == 1
    assert stream.lost is not None
    assert stream.write("c") == 1
    assert (tmp_path / "file").read_text() == "a"
    assert GuardedStream(None).write("nobody listens") == 14


def test_a_working_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    done = shell(
        tmp_path, "mkdir gone; cd gone; rmdir ../gone; specstorm faults list 2>&1 | tail -1; exit ${PIPESTATUS[0]}"
    )
    assert done.returncode == 2
    assert done.stdout.startswith("specstorm: the working directory is gone")


def test_internal_error_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cluster.cli.commands", None)
    assert cli.run(["faults", "list"]) == 3
    assert "internal error, no verdict was reached" in capsys.readouterr().err


def test_crash_that_cannot_be_printed_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(error: BaseException) -> None:
        raise MemoryError

    monkeypatch.setitem(sys.modules, "cluster.cli.commands", None)
    monkeypatch.setattr("traceback.print_exception", fail)
    assert cli.run(["faults", "list"]) == 3
    assert capfd.readouterr().err.endswith("specstorm: printing the error failed too: MemoryError\n")


@pytest.mark.parametrize(("flag", "size"), [("v", 40_000), ("v", 150_000), ("d", 95_000), ("d", 100_000)])
def test_too_little_memory_to_load_is_one_line_and_never_passes_for_a_finding(
    tmp_path: Path, flag: str, size: int
) -> None:
    done = shell(tmp_path, f"ulimit -{flag} {size}; specstorm faults list")
    seen = f"the memory of a process is limited to {size:,} kB here (ulimit -{flag})"
    assert (done.returncode, done.stderr) == (2, f"specstorm: {seen}; at least 262,144 kB are required\n")


@pytest.mark.parametrize("size", [300_000, 600_000])
def test_too_little_memory_for_a_private_ray_is_one_line(tmp_path: Path, size: int) -> None:
    scenarios(tmp_path, 1)
    done = shell(tmp_path, f"ulimit -v {size}; specstorm run scn --ray local --workers 1 --out out")
    seen = f"specstorm: the memory of a process is limited to {size:,} kB here (ulimit -v)"
    assert (done.returncode, done.stderr) == (2, f"{seen}; a private Ray needs at least 1,200,000 kB, --ray off less\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["v", "d"])
def test_minimum_memory_is_sufficient(tmp_path: Path, flag: str) -> None:
    scenarios(tmp_path, 1)
    done = shell(tmp_path, f"ulimit -{flag} {cli.MEMORY_MIN >> 10}; specstorm run scn --ray off --out out")
    assert done.returncode == 0, done.stderr


def test_a_home_that_cannot_be_written_is_not_needed(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    done = shell(tmp_path, "export HOME=/proc/none; specstorm run scn --ray off --out out")
    assert (done.returncode, num_results(tmp_path / "out")) == (0, 1), done.stderr


def test_a_default_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "campaigns").write_text("a file\n")
    assert cli.run(["run", "scn", "--ray", "off"]) == 2
    assert capsys.readouterr().err == (
        f"specstorm: {tmp_path}/campaigns: File exists; name a folder that can be written with --out\n"
    )


def small_files(limit: int) -> Callable[[], None]:
    """Return a function that limits the size of a process's files."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def test_a_store_that_cannot_be_begun_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    done = shell(tmp_path, "specstorm run scn --ray off --out out", small_files(4096))
    assert done.returncode == 2
    assert (
        "out: cannot be written: files may have at most 4096 bytes here (ulimit -f); give another --out" in done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_run_on_a_full_disk_prints_its_results_and_resumes(tmp_path: Path) -> None:
    scenarios(tmp_path, 8)
    done = shell(tmp_path, "specstorm run scn --ray off --out out", small_files(90_000))
    assert done.returncode == 3, done.stdout + done.stderr
    (told,) = [line for line in done.stderr.splitlines() if " scenarios, " not in line]
    assert "files may have at most 90000 bytes here (ulimit -f); continue with: " in told
    assert told.endswith("-m cluster run scn --ray off --out out")
    judged = done.stdout.count(" agreed") - 1
    assert 1 <= judged < 8
    assert "stopped after" not in done.stdout, "the resume command is printed once"
    done = specstorm(tmp_path, "run", "scn", "--ray", "off", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "8 scenarios: 8 agreed" in done.stdout


def test_a_shrunk_trace_that_cannot_be_written_is_printed(tmp_path: Path) -> None:
    (tmp_path / "found.yaml").write_text((ROOT / "scenarios" / "regressions" / f"{FOUND}.yaml").read_text())
    done = shell(tmp_path, "specstorm shrink found.yaml --limit 3", small_files(10))
    assert done.returncode == 1, done.stderr
    assert "(ulimit -f); the trace is on stderr" in done.stdout
    assert "\nevents:\n" in done.stderr


def test_a_wrong_token_is_named_in_one_line_and_leaves_no_campaign(tmp_path: Path, ray_cluster: RayCluster) -> None:
    scenarios(tmp_path, 1)
    address = ray_cluster.module.get_runtime_context().gcs_address
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    token = tmp_path / "token"
    token.write_text("b" * 64)
    cases = {
        "it wants a token, and RAY_AUTH_MODE is not set": {},
        f"it refuses the token in {token}": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)},
    }
    for told, environment in cases.items():
        done = specstorm(tmp_path, "run", "scn", "--ray", address, environment={**loopback, **environment})
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert told in done.stderr
        assert "RAY_AUTH_TOKEN_PATH" in done.stderr
    assert not (tmp_path / "campaigns").exists()


def test_a_server_that_is_no_ray_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket  # noqa: PLC0415

    monkeypatch.setattr(reach, "ANSWER_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ReachError, match="no Ray of this version"):
        reach.reach(f"127.0.0.1:{server.getsockname()[1]}")
