"""Defaults of options from a pyproject.toml: choice of the file, and forbidden values."""

import os
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.main import get_command

from cluster.cli import main as cli
from cluster.cli.commands import app
from cluster.cli.defaults import PROGRAMS, default_map, defaults_file
from cluster.cli.doctor_command import _defaults
from cluster.cli.inputs import InputError
from tests.cluster.cli.test_edge import scenarios

Capture: TypeAlias = pytest.CaptureFixture[str]
# Parameters with free text or a path that name no program: data, folders of results, names, numbers of a cluster's job.
_NAMES = {
    "bad",
    "base",
    "canary",
    "engine",
    "fault",
    "fixes",
    "focus",
    "good",
    "job",
    "keyword",
    "plane",
    "profile",
    "release",
    "versions",
}
_FILES = {"campaign", "corpus", "evidence", "junit", "known", "out", "regressions"}
DATA = _NAMES | _FILES | {"note", "to", "until", "upstream", "versions"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three scenarios below `scn`, in which the command runs."""
    scenarios(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_come_from_the_nearest_pyproject_and_the_command_line_overrides_them(
    folder: Path, capsys: Capture
) -> None:
    (folder / "pyproject.toml").write_text('[tool.specstorm]\nray = "off"\n[tool.specstorm.run]\nlist = true\n')
    assert cli.run(["run", "scn", "-k", "s1"]) == 0
    assert capsys.readouterr().out == "scn/s1.yaml\n"
    (folder / ".git").mkdir()
    (folder / "pyproject.toml").write_text('[tool.specstorm]\nray = "127.0.0.1:1"\n')
    assert cli.run(["run", "scn", "-k", "s1"]) == 2
    assert "Ray at 127.0.0.1:1" in capsys.readouterr().err
    assert cli.run(["run", "scn", "-k", "s1", "--ray", "off"]) == 0


def test_default_workers_option_is_ignored_without_ray(folder: Path, capsys: Capture) -> None:
    (folder / "pyproject.toml").write_text("[tool.specstorm]\nworkers = 3\n")
    assert cli.run(["run", "scn", "-k", "s1", "--ray", "off"]) == 0
    assert cli.run(["run", "scn", "-k", "s1", "--ray", "off", "--workers", "3"]) == 2
    assert "--workers is 3; --ray off runs one engine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.specstorm]\nworkrs = 2\n", "unknown key 'workrs'; did you mean workers? allowed are "),
        ("[tool.specstorm.run]\nworkrs = 2\n", "[tool.specstorm] run: unknown key 'workrs'; did you mean workers?"),
        ("[tool]\nspecstorm = 3\n", "tool.specstorm is 3; expected a table of options"),
        ('tool = "x"\n', "tool is 'x'; expected a table of options"),
        (f'tool = "{"x" * 3_000_000}"\n', "(3,000,002 characters); expected a table of options"),
        (f"a = {'[' * 5000}\n", "pyproject.toml: cannot be read: nested too deeply"),
        (" " * (5 << 20), "pyproject.toml: cannot be read: more than 4194304 bytes"),
        ("[tool.specstorm\n", "pyproject.toml: cannot be read: "),
        ('[tool.specstorm]\nworkers = "many"\n', "pyproject.toml: [tool.specstorm]: Invalid value for '--workers'"),
    ],
)
def test_wrong_defaults_are_reported_in_a_line_with_their_file(
    folder: Path, capsys: Capture, text: str, message: str
) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert cli.run(["run", "scn", "--ray", "off"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_wrong_typed_option_is_not_blamed_on_the_file(folder: Path, capsys: Capture) -> None:
    (folder / "pyproject.toml").write_text("[tool.specstorm]\nworkers = 2\n")
    assert cli.run(["run", "scn", "--ray", "off", "--workers", "many"]) == 2
    assert capsys.readouterr().err.startswith("specstorm: Invalid value for '--workers'")


NAMING = {
    "engine-home": "/evil",
    "engine-path": "/evil",
    "notify": "/evil/program",
    "environments": "/evil",
    "repository": "/evil",
    "ray": "evil:1",
    "address": "http://evil",
}


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder / "pyproject.toml"


def test_every_option_with_free_text_is_known_to_name_a_program_or_not() -> None:
    def options(command: Any) -> set[str]:
        below = [options(each) for each in getattr(command, "commands", {}).values()]
        mine = [each for each in command.params if each.opts[0].startswith("-")]
        return {each.name for each in mine if each.multiple or each.type_descriptor.annotation in (str, Path)}.union(
            *below
        )

    assert options(get_command(app)) - {"install_completion", "show_completion"} == PROGRAMS | DATA


@pytest.mark.parametrize("option", NAMING)
@pytest.mark.parametrize("where", ["no repository", "another owner", "all may write", "in a campaign"])
def test_file_that_is_not_the_user_s_own_names_no_program(
    option: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, text = tmp_path / "repository" / "here", f'[tool.specstorm]\n{option} = "{NAMING[option]}"\n'
    file = write(here, text)
    (tmp_path / "repository" / ".git").mkdir()
    assert default_map(app, here) != {}
    if where == "in a campaign":
        (here / "campaign.sqlite").touch()
        assert not any(default_map(app, here).values())
        assert default_map(app, here / "artefacts") == default_map(app, here)
        return
    if where == "no repository":
        (tmp_path / "repository" / ".git").rmdir()
    elif where == "all may write":
        file.chmod(0o666)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(InputError, match=rf"{file}: \[tool.specstorm\]: {option} selects a program to run"):
        default_map(app, here)


def test_ray_of_this_machine_is_a_default_of_any_file(tmp_path: Path) -> None:
    for value in ("auto", "local", "off"):
        write(tmp_path, f'[tool.specstorm]\nray = "{value}"\n')
        assert default_map(app, tmp_path)["run"] == {"ray": value}


@pytest.mark.parametrize("marks", [("campaign.sqlite",), ("campaign.lock",), ("job.json", "artefacts")])
def test_defaults_file_is_outside_of_every_campaign(marks: tuple[str, ...], tmp_path: Path) -> None:
    outside = write(tmp_path / "work", "")
    campaign = tmp_path / "work" / "campaigns" / "a"
    inner = campaign / "regressions"
    inner.mkdir(parents=True)
    for mark in marks:
        (campaign / mark).touch()
    (inner / ".git").mkdir()
    for folder in (campaign, inner):
        write(folder, '[tool.specstorm]\nengine-home = "/evil"\n')
        assert defaults_file(folder) == outside
        assert str(outside) in _defaults(folder).seen


def test_doctor_names_no_file_where_there_is_none(tmp_path: Path) -> None:
    assert _defaults(tmp_path).seen.startswith("none: no pyproject.toml from ")
