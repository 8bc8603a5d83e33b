"""Hostile campaign folders: nothing outside of them changes, and no command hangs."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.cli.inputs import campaign_stem
from cluster.storage.errors import CampaignError
from cluster.storage.lock import LOCK, claim, is_locked
from cluster.storage.store import Store
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


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, x, x FROM n"


@pytest.mark.parametrize("table", ["meta", "runs", "results"])
@pytest.mark.parametrize("command", ["report", "merge", "run"])
def test_database_with_a_view_that_never_ends_is_refused(
    command: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(SCENARIO.format(seed=1))
    with Store(Path("camp")):
        pass
    with closing(sqlite3.connect("camp/campaign.sqlite")) as database:
        database.execute(f"DROP TABLE {table}")
        database.execute(f"CREATE VIEW {table} AS {ENDLESS}")
    words = {"run": ["run", "a.yaml", "--ray", "off", "--out", "camp"], "merge": ["merge", "camp", "--out", "m"]}
    assert cli.run(words.get(command, [command, "camp"])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not a campaign database: a view of it is computed" in line


def test_database_with_a_generated_column_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "camp"):
        pass
    with closing(sqlite3.connect(tmp_path / "camp" / "campaign.sqlite")) as database:
        database.execute("ALTER TABLE runs ADD COLUMN more AS (hex(zeroblob(100000000)))")
    with pytest.raises(CampaignError, match="a table of it is computed"):
        Store(tmp_path / "camp")
