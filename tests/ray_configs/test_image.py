"""The image: it installs the project's own dependencies, and copies no generated files."""

import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from tests.ray_configs.files import CONFIGS, ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_build_installs_what_the_project_names(device: str) -> None:
    found = re.search(r'^RUN (python -c ".*?") > /tmp/requirements.txt', DOCKERFILE, re.MULTILINE)
    assert found is not None
    command = found[1].replace("python", shlex.quote(sys.executable), 1)
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=ROOT, env={"DEVICE": device}, capture_output=True, text=True, check=True
    )
    extras = PROJECT["optional-dependencies"].get(device, [])
    assert done.stdout.splitlines() == [*PROJECT["dependencies"], *extras]
    assert bool(extras) == (device == "gpu")


def test_the_image_has_a_python_that_the_project_runs_on_and_a_user_who_is_not_root() -> None:
    found = re.search(r"^ARG PYTHON=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]
    assert re.search(r"--uid (\d+)", DOCKERFILE)[1] == "1000"  # type: ignore[index]
    assert "runAsUser: 1000" in (CONFIGS / "kuberay" / "cluster.yaml").read_text()
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["1000"]


def test_nothing_that_git_ignores_gets_into_an_image_or_a_job() -> None:
    def names(file: str) -> set[str]:
        lines = (ROOT / file).read_text().splitlines()
        return {line.strip("/").removeprefix("**/") for line in lines if line and not line.startswith("#")}

    assert names(".gitignore") <= names(".dockerignore")
    assert names(".gitignore") <= names(".rayignore")
