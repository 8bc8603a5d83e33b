"""Files for `ray up`, checked by Ray's autoscaler; runtime environments; `head.sh`."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.dispatch.runtime_environment import requirements_of, runtime_env
from tests.cluster.validators import accepted_by_autoscaler, accepted_by_runtime_env
from tests.ray_configs.files import CONFIGS, ROOT, documents

LAUNCHERS = sorted((CONFIGS / "launcher").glob("*.yaml"))


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.name)
def test_the_autoscaler_takes_a_launcher_file_and_refuses_a_misspelt_one(path: Path) -> None:
    (values,) = documents(path)
    prepared = accepted_by_autoscaler(values)
    commands = " ".join([*prepared["head_start_ray_commands"], *prepared["worker_start_ray_commands"]])
    assert commands.count("RAY_AUTH_MODE=token") == commands.count("ray start") == 2
    assert "RAY_JOB_STOP_WAIT_TIME_S=30" in commands
    assert "~/.ray/auth_token" in values["file_mounts"]
    with pytest.raises(ValueError, match="idle_timeout_minuets"):
        accepted_by_autoscaler({**values, "idle_timeout_minuets": 5})


def test_one_launcher_is_for_cpus_and_one_for_gpus() -> None:
    gpus = {path.name: "GPU" in path.read_text() for path in LAUNCHERS}
    assert gpus == {"aws_gpu.yaml": True, "on_premises_cpu.yaml": False}


def test_local_paths_of_a_launcher_are_there() -> None:
    for path in LAUNCHERS:
        (values,) = documents(path)
        local = [source for source in values["file_mounts"].values() if not source.startswith("~")]
        assert [source for source in local if not (ROOT / source).exists()] == []


def environment(name: str) -> Any:
    (values,) = documents(CONFIGS / name)
    return values


def test_runtime_environments_are_those_that_submit_makes() -> None:
    every = requirements_of(ROOT, ()).installable()
    for name, install in (("runtime_env.yaml", []), ("runtime_env_install.yaml", every)):
        made = runtime_env(ROOT, install)
        made.pop("working_dir")
        assert environment(name) == made
        assert accepted_by_runtime_env(made)["env_vars"] == made["env_vars"]


def test_the_script_of_a_local_head_is_one_that_the_shell_reads() -> None:
    script = CONFIGS / "local" / "head.sh"
    assert script.stat().st_mode & 0o111
    done = subprocess.run(["/bin/sh", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def started(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `head.sh` with a fake `ray` that prints its arguments; return the output."""
    script, fake = folder / "ray_configs" / "local" / "head.sh", folder / "ray"
    script.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(CONFIGS / "local" / "head.sh", script)
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    command = [str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Occupy a port, unless another process has it."""
    with socket.socket() as listener:
        with suppress(OSError):
            listener.bind(("127.0.0.1", port))
            listener.listen()
        yield


def test_a_local_head_takes_other_ports_than_another_ray_of_this_host(tmp_path: Path) -> None:
    with taken(6379), taken(10001):
        done = started(tmp_path, "--dashboard-port=8299", "--num-cpus", "1")
    assert done.returncode == 0, done.stderr
    ports = dict(re.findall(r"(--\S*port)=(\d+)", done.stdout))
    assert ports.keys() == {"--dashboard-agent-listen-port", "--port", "--ray-client-server-port", "--dashboard-port"}
    assert ports["--dashboard-agent-listen-port"] == "0"
    assert len({"6379", "10001", ports["--port"], ports["--ray-client-server-port"]}) == 4
    assert done.stdout.endswith(" --dashboard-port=8299 --num-cpus 1\n")


def test_a_local_head_whose_job_server_has_no_port_says_so_at_once(tmp_path: Path) -> None:
    with taken(8265):
        done = started(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("head.sh: port 8265 of the job server: Address already in use; give --dashboard-port")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--dashboard-port=18265",), "--dashboard-port is 18265; Ray takes ports 10002 to 19999 for its workers"),
        (("--port", "10002"), "--port is 10002; Ray takes ports 10002 to 19999 for its workers, give another port"),
        (("--dashboard-port=8299", "--port=8299"), "--port is 8299, and so is --dashboard-port; give another port"),
        (("--port=65536",), "--port is '65536'; wanted a port from 0 to 65535"),
        (("--dashboard-port=http",), "--dashboard-port is 'http'; wanted a port from 0 to 65535"),
        (("--dashboard-port",), "--dashboard-port is ''; wanted a port from 0 to 65535"),
        (("--metrics-export-port=8297",), "--metrics-export-port is 8297: Address already in use; give another port"),
    ],
)
def test_a_port_that_a_local_head_cannot_have_is_one_line(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    with taken(8297):
        done = started(tmp_path, *options)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"head.sh: {said}")


def test_a_local_head_takes_another_default_port_where_one_is_given_to_another_server(tmp_path: Path) -> None:
    done = started(tmp_path, "--port=10001", "--dashboard-port=8299")
    assert done.returncode == 0, done.stderr
    assert "--ray-client-server-port=10001" not in done.stdout


def test_a_local_head_is_given_a_port_of_its_own_range_of_workers(tmp_path: Path) -> None:
    done = started(tmp_path, "--dashboard-port=18265", "--min-worker-port=20000", "--max-worker-port=20100")
    assert (done.returncode, done.stderr) == (
        0,
        f"token written to {tmp_path}/.ray/auth_token: give clients RAY_AUTH_MODE=token\n",
    )
