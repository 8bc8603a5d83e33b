"""Python interface, pytest plugin, and files of the distribution."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import specstorm
from cluster.cli import main as cli
from cluster.cli.inputs import BUNDLED
from cluster.dispatch.origin import ROOT
from scenarios import codec
from tests.cluster.cli.test_commands import FOUND, SECONDS_MAX
from tests.cluster.cli.test_edge import TINY, scenarios
from workers.record.verdict import Agreed, Diverged


def test_a_trace_is_checked_and_the_verdict_returned(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    file = tmp_path / "scn" / "s0.yaml"
    assert isinstance(specstorm.check(file).verdict, Agreed)
    assert isinstance(specstorm.check(codec.load(file), faults=[FOUND]).verdict, Diverged)
    with pytest.raises(ValueError, match="unknown fault 'none'"):
        specstorm.check(file, faults=["none"])
    with pytest.raises(ValueError, match=r"absent.yaml: No such file"):
        specstorm.check("absent.yaml")


def test_scenarios_are_run_and_their_values_returned(tmp_path: Path) -> None:
    scenarios(tmp_path, 2)
    told = specstorm.run(tmp_path / "scn", keyword="s1")
    assert (told.exit_code, told.summary) == (0, {"agreed": 1})
    told = specstorm.run(tmp_path / "scn", faults=[FOUND], out=tmp_path / "out")
    assert (told.exit_code, told.summary) == (1, {"diverged": 2})
    artefact = told.scenarios[0].artefact
    assert artefact is not None
    assert (tmp_path / "out" / artefact).is_file()
    assert specstorm.run(tmp_path / "scn", time_limit=0.000001).exit_code == 3


def test_a_hunt_returns_what_it_found() -> None:
    told = specstorm.hunt(traces=4, seed=1)
    assert told.exit_code in (0, 3)
    assert told.findings == ()


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin in a folder."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "cluster.cli.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "-rs",
            *arguments,
        ],
        cwd=folder,
        # Installed or not, the plugin is loaded once.
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_pytest_collects_scenario_files_where_it_is_asked_to(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    good = TINY.format(seed=1)
    (tmp_path / "known.yaml").write_text(f"{good}faults: [{FOUND}]\n")
    (tmp_path / "vacuous.yaml").write_text(f"{good}expect: {{eviction: 1}}\n")
    (tmp_path / "wrong.yaml").write_text("events: [{do: dance}]\n")
    (tmp_path / "somebody_elses.yaml").write_text("name: workflow\n")
    done = pytest_in(tmp_path, "--specstorm")
    assert "2 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "VACUOUS" in done.stdout
    assert "eviction: expected at least 1, seen 0" in done.stdout
    assert "wrong.yaml:1: unknown event" in done.stdout
    assert f"switches on a known bug: {FOUND}" in done.stdout
    assert "Traceback" not in done.stdout


def test_without_being_asked_the_plugin_collects_nothing_and_loads_nothing(tmp_path: Path) -> None:
    scenarios(tmp_path, 1)
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n    assert not {'workers', 'pydantic', 'typer'} & sys.modules.keys()\n"
    )
    done = pytest_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_our_scenarios_are_found_by_name_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["run", "smoke", "--list"]) == 0
    names = capsys.readouterr().out.split()
    assert "smoke/abort_in_flight.yaml" in names
    assert cli.run(["run", "smoke/tight_pool.yaml", "--list"]) == 0
    assert capsys.readouterr().out == "smoke/tight_pool.yaml\n"
    assert cli.run(["validate", "seeds"]) == 0
    (tmp_path / "smoke").mkdir()
    assert cli.run(["run", "smoke", "--list"]) == 2
    assert "smoke: the folder holds no scenario file (*.yaml)" in capsys.readouterr().err


def test_the_distribution_carries_every_scenario_the_interface_and_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["setuptools"]["package-data"]["scenarios"]
    files = {path for pattern in carried for path in (ROOT / "scenarios").glob(pattern)}
    wanted = {path for name in BUNDLED for path in (ROOT / "scenarios" / name).rglob("*.yaml")}
    assert wanted
    assert wanted <= files
    assert project["tool"]["setuptools"]["py-modules"] == ["specstorm", "specstorm_vllm"]
    # pytest would rewrite the assertions of all our modules.
    assert "pytest11" not in project["project"].get("entry-points", {})
