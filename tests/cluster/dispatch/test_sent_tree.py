"""The folder that is sent with a job: a checkout or installed files, plus input files."""

from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch import runtime_environment
from cluster.dispatch.origin import ROOT
from cluster.dispatch.runtime_environment import requirements_of, runtime_env, sent_tree

METADATA = """Metadata-Version: 2.1
Name: specstorm
Version: 0.1.0
Requires-Python: >=3.11
Requires-Dist: numpy>=2.0
Requires-Dist: never-installed>=1
Requires-Dist: torch>=2.11; extra == "gpu"
Requires-Dist: mypy; extra == "dev"
"""
FILES = ("specstorm.py", "cluster/cli/main.py", "scenarios/smoke/a.yaml", "other/x.py", "cluster/__pycache__/m.pyc")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program as installed from a wheel, in a folder of its own."""
    site = tmp_path / "site"
    info = site / "specstorm-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in FILES))
    for name in FILES:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    monkeypatch.setattr(runtime_environment, "ROOT", site)
    found = PathDistribution(info)
    monkeypatch.setattr(
        runtime_environment, "distribution", lambda name: found if name == "specstorm" else distribution(name)
    )
    return site


def test_a_checkout_is_sent_as_it_is() -> None:
    with sent_tree({}) as tree:
        assert tree == ROOT


@pytest.mark.usefixtures("installed")
def test_wheel_sends_installed_files_and_user_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "b.yaml").write_text("b")
    (tmp_path / "c.yaml").write_text("c")
    with sent_tree({"inputs/0/mine": tmp_path / "mine", "inputs/1/c.yaml": tmp_path / "c.yaml"}) as tree:
        sent = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert sent == {*FILES[:3], "inputs/0/mine/b.yaml", "inputs/1/c.yaml"}
    assert not tree.exists()


def test_wheel_requirements_are_pinned_to_local_versions(installed: Path) -> None:
    wanted = requirements_of(installed, ["gpu"])
    assert [str(each) for each in wanted.packages] == ["numpy>=2.0", "never-installed>=1", "torch>=2.11"]
    numpy = distribution("numpy").version
    pip = runtime_env(installed, ["numpy>=2.0", "never-installed>=1"])["pip"]
    assert pip["packages"] == [f"numpy=={numpy}", "never-installed>=1"]
    assert runtime_env(ROOT, ["numpy>=2.0"])["pip"]["packages"][0].endswith("/constraints.txt")


@pytest.mark.usefixtures("installed")
def test_wheel_submits_a_command_with_files_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("c")
    assert cli.run(["submit", "--address", "http://127.0.0.1:9", "run", "c.yaml", "smoke"]) == 2
    assert "no Ray job server answers at" in capsys.readouterr().err
