"""Command `doctor` and its checks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.cli.doctor_command import TRACE, trace_for
from cluster.dispatch.machine import (
    Check,
    available_memory,
    checks_of_machine,
    checks_of_packages,
    checks_of_servers,
    usable_processors,
)
from cluster.reports.documents import DoctorDocument
from scenarios.capabilities import lacking
from scenarios.trace import problems
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import RunConfig

ROOT = Path(__file__).resolve().parents[3]


def by_name(checks: list[Check]) -> dict[str, Check]:
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def test_doctor_runs_every_engine_on_every_device(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "cluster", "doctor", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = DoctorDocument.model_validate(json.loads(done.stdout))
    checks = by_name(list(document.checks))
    tried = [f"{name} on {device}" for name in known_engines() for device in target_kind(name).capabilities.devices]
    assert set(tried) <= checks.keys()
    assert checks["specstorm on sim"].state == checks["a private ray"].state == "yes"
    assert (checks["specstorm on cuda"].state == "yes") <= (checks["gpu"].state != "no")
    assert list(tmp_path.iterdir()) == [], "doctor leaves no file behind"


def test_the_trace_that_is_tried_is_valid() -> None:
    assert list(problems(TRACE)) == []


@pytest.mark.parametrize("engine", known_engines())
def test_doctor_tries_a_trace_that_the_engine_can_run_on_each_device(engine: str) -> None:
    kind = target_kind(engine)
    assert kind.capabilities.devices, "an engine runs somewhere"
    for device in kind.capabilities.devices:
        config = RunConfig.model_validate({"engine": engine, "device": device})
        assert lacking(trace_for(config), kind.capabilities_under(config)) is None, device


def test_insufficient_property_has_a_remedy(tmp_path: Path) -> None:
    checks = [*checks_of_machine(tmp_path), *checks_of_packages(), *checks_of_servers()]
    assert checks
    for check in checks:
        assert check.seen
        assert (check.state == "yes") == (check.remedy == ""), check


def test_a_folder_that_cannot_be_written_is_limited(tmp_path: Path) -> None:
    assert by_name(checks_of_machine(Path("/proc")))["disk"].state == "limited"


def test_doctor_numbers_equal_the_system_values() -> None:
    assert 0 < usable_processors() <= len(os.sched_getaffinity(0))
    available, total = available_memory()
    assert 0 < available <= total


def test_a_token_that_others_can_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o644)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    check = by_name(checks_of_servers())["ray's token"]
    assert (check.state, check.remedy) == ("limited", f"chmod 600 {token}")
    token.chmod(0o600)
    assert by_name(checks_of_servers())["ray's token"].state == "yes"


@pytest.mark.parametrize(
    ("variable", "name"), [("RAY_ADDRESS", "ray cluster"), ("RAY_API_SERVER_ADDRESS", "job server")]
)
def test_a_server_that_does_not_answer_is_named_with_its_remedy(
    variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "127.0.0.1:9" if variable == "RAY_ADDRESS" else "http://127.0.0.1:9")
    check = by_name(checks_of_servers())[name]
    assert check.state == "no"
    assert "127.0.0.1:9" in check.seen
    assert check.remedy
