"""Campaign folders that a stranger made or named: nothing outside of them changes, and nothing waits."""

import os
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.cli.inputs import campaign_stem
from cluster.storage.errors import CampaignError
from cluster.storage.lock import LOCK, claim, is_locked
from tests.cluster.cli.test_commands import SCENARIO


@pytest.mark.parametrize("name", [".git", ".GIT", ".hidden", "a/.b", ".git/hooks", ".Git/a/b"])
def test_campaign_with_a_hidden_name_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(SCENARIO.format(seed=1))
    for command in (["run", "a.yaml", "--ray", "off"], ["hunt", "--traces", "1", "--ray", "off"]):
        assert cli.run([*command, "--out", name]) == 2
        assert "a campaign is no hidden folder, and is not inside .git; give another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


@pytest.mark.parametrize(("name", "stem"), [(".git.yaml", "git"), ("-rf.yaml", "rf"), ("...yaml", "campaign")])
def test_stem_of_a_campaign_is_neither_hidden_nor_an_option(name: str, stem: str, tmp_path: Path) -> None:
    assert campaign_stem([tmp_path / name]) == stem


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_lock_file_that_is_another_file_is_refused(kind: str, tmp_path: Path) -> None:
    campaign, victim = tmp_path / "a", tmp_path / "victim"
    campaign.mkdir()
    victim.write_text("mine")
    lock = campaign / LOCK
    match kind:
        case "link":
            lock.symlink_to(victim)
        case "hard link":
            lock.hardlink_to(victim)
        case "pipe":
            os.mkfifo(lock)
        case _:
            lock.mkdir()
    with pytest.raises(CampaignError, match=f"{campaign}: cannot be written: "):
        claim(campaign)
    assert not is_locked(campaign)
    assert victim.read_text() == "mine"
