"""Damaged campaigns are reported and repaired, and lost jobs run again."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from benchmarks.robustness.store_damage import campaign, results_of, run, scenarios_of
from cluster.campaigns.suite import Suite
from cluster.cli import main as cli
from cluster.storage.campaign import DATABASE, Campaign
from cluster.storage.errors import CampaignError, StoreError
from cluster.storage.lines import result_lines, write_lines
from cluster.storage.lock import LOCK
from cluster.storage.schema import TABLES
from cluster.storage.store import Store
from cluster.storage.wal import log_of

SCENARIOS = scenarios_of(9)
ALTERED = '"commits":1', '"commits":2'


def alter(folder: Path, *edits: str) -> None:
    """Edit a closed campaign with SQL."""
    database = sqlite3.connect(folder / DATABASE)
    with database:
        for edit in edits:
            database.execute(edit)
    database.close()


def test_nothing_is_lost_and_nothing_wrong_is_kept_after_random_damage(tmp_path: Path) -> None:
    wrong, counts = campaign(tmp_path, num_damages=24, num_scenarios=20, seed=2)
    assert wrong == []
    files = (DATABASE, f"{DATABASE}-wal", "an artefact")
    kinds = ("full disk", *(f"{kind} of {file}" for kind in ("flip", "truncation") for file in files))
    assert [kind for kind in kinds if not counts[kind]] == [], counts


def test_a_judgement_that_was_altered_is_dropped_reported_and_run_again(tmp_path: Path) -> None:
    run(tmp_path, SCENARIOS)
    expected = results_of(tmp_path)
    altered = "UPDATE results SET judgement = REPLACE(judgement, '{}', '{}') WHERE scenario = 's3.yaml'"
    alter(tmp_path, altered.format(*ALTERED))
    with Campaign(tmp_path) as seen:
        assert len(list(seen.results())) == len(SCENARIOS) - 1
        assert seen.remarks == [f"{tmp_path / DATABASE}: 1 altered row of results left out"]
    kept, said = run(tmp_path, SCENARIOS)
    assert kept == len(SCENARIOS) - 1
    assert len(said) == 1
    assert "was damaged (1 altered row in results)" in said[0]
    assert said[0].endswith("it stays as campaign.sqlite.damaged-1")
    assert (tmp_path / "campaign.sqlite.damaged-1").is_file()
    assert results_of(tmp_path) == expected
    assert run(tmp_path, SCENARIOS) == (len(SCENARIOS), [])


def test_a_row_altered_while_the_campaign_is_open_ends_the_run_with_one_line(tmp_path: Path) -> None:
    run(tmp_path, SCENARIOS)
    with Store(tmp_path) as store:
        alter(tmp_path, "UPDATE results SET attempt = 7 WHERE scenario = 's3.yaml'")
        with pytest.raises(
            StoreError, match="a row of results was altered while it was open; the next command that opens it drops it"
        ):
            store.result(SCENARIOS[3].job.key)


def test_an_empty_database_is_reported_and_begun_anew(tmp_path: Path) -> None:
    run(tmp_path, SCENARIOS)
    os.truncate(tmp_path / DATABASE, 0)
    with pytest.raises(CampaignError, match=r"is empty \(0 bytes\)"):
        Campaign(tmp_path)
    kept, said = run(tmp_path, SCENARIOS)
    assert kept == 0
    assert said == [f"{tmp_path / DATABASE}: was empty (0 bytes): whatever it held is gone, and is run again"]


def test_foreign_or_other_version_database_is_refused_unchanged(tmp_path: Path) -> None:
    foreign, earlier, later = (tmp_path / name for name in ("foreign", "earlier", "later"))
    foreign.mkdir()
    alter(foreign, "CREATE TABLE songs (title)")
    for folder, version in ((earlier, "2"), (later, "9")):
        run(folder, SCENARIOS[:1])
        seal = TABLES["meta"].sealed(("schema", version))[-1]
        alter(folder, f"UPDATE meta SET value = '{version}', seal = '{seal}'")
    for folder, message in (
        (foreign, "is not a campaign database: its tables are others"),
        (earlier, "is a campaign of version 2; this is for version 3"),
        (later, "is a campaign of version 9; this is for version 3"),
    ):
        before = (folder / DATABASE).read_bytes()
        with pytest.raises(CampaignError, match=message):
            Store(folder)
        assert (folder / DATABASE).read_bytes()[100:] == before[100:], "the pages of tables are as they were"


def test_run_records_its_provenance_and_json_lines(tmp_path: Path) -> None:
    with Store(tmp_path, seed=5) as store:
        pass
    run(tmp_path, SCENARIOS)
    with Campaign(tmp_path) as kept:
        first, second = kept.runs()
        assert (first.seed, second.seed) == (5, None)
        assert first.run == store.run.run
        assert first.command.startswith("specstorm")
        assert first.libraries["numpy"]
        write_lines(kept, tmp_path / "results.jsonl")
        lines = list(result_lines(kept))
    assert (tmp_path / "results.jsonl").read_text().splitlines() == lines
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["run", "run", *["judgement"] * len(SCENARIOS)]
    judgements = [json.loads(line)["judgement"]["verdict"]["kind"] for line in lines[2:]]
    assert sorted(set(judgements)) == ["agreed", "crashed"]


def killed(folder: Path) -> Path:
    """Return the campaign of a process that was killed after its last job."""
    copy = folder / "killed"
    run(folder / "open", SCENARIOS, left=copy)
    return copy


def test_the_log_of_a_killed_process_holds_everything_and_is_no_damage(tmp_path: Path) -> None:
    assert run(killed(tmp_path), SCENARIOS) == (len(SCENARIOS), [])


@pytest.mark.parametrize(
    ("place", "what"),
    [(5, "its header was"), (41, "frame 1 of"), (47, "frame 1 of"), (32 + 4120 + 100, "frame 2 of")],
    ids=["header", "one salt", "other salt", "page"],
)
def test_a_log_that_was_altered_is_reported_to_writers_and_readers(tmp_path: Path, place: int, what: str) -> None:
    folder = killed(tmp_path)
    log = log_of(folder / DATABASE)
    content = bytearray(log.read_bytes())
    content[place] ^= 1
    log.write_bytes(content)
    with Campaign(folder) as seen:
        (remark,) = seen.remarks
    assert remark.startswith(f"{log}: was damaged ({what}")
    assert run(folder, SCENARIOS) == (0, [remark])
    assert results_of(folder) == results_of(tmp_path / "open")


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_missing_log_of_a_killed_run_is_reported(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed(tmp_path)
    log = log_of(folder / DATABASE)
    if how == "missing":
        log.unlink()
    else:
        os.truncate(log, 0)
    gone = "the last records are lost; run the command again to repeat them"
    remark = f"{log}: is {how}, and the run before was killed: {gone}"
    with Campaign(folder) as seen:
        assert seen.remarks == [remark]
    assert cli.run(["watch", "--once", str(folder)]) == 0
    assert cli.run(["report", str(folder)]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [f"specstorm: {remark}"] * 2
    assert told.out.endswith(f"Not judged to the end: {folder / 'report.html'}\n")
    assert run(folder, SCENARIOS) == (0, [remark])
    with Campaign(folder) as seen:
        assert seen.remarks == [], "the run after it ended by itself"
    assert run(folder, SCENARIOS) == (len(SCENARIOS), [])


def test_a_database_that_is_missing_beside_its_log_is_reported(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    (folder / DATABASE).unlink()
    what = "is missing beside its log (campaign.sqlite-wal): whatever it held is gone, and is run again"
    assert run(folder, SCENARIOS) == (0, [f"{folder / DATABASE}: {what}"])
    assert run(folder, SCENARIOS) == (len(SCENARIOS), [])


def test_run_killed_after_its_end_needs_no_log(tmp_path: Path) -> None:
    run(tmp_path, SCENARIOS)
    with Campaign(tmp_path) as seen:
        (ended,) = seen.runs()
    (tmp_path / LOCK).write_text(ended.run)
    with Campaign(tmp_path) as seen:
        assert seen.remarks == []


def test_artefacts_that_are_missing_or_damaged_are_written_again(tmp_path: Path) -> None:
    run(tmp_path, SCENARIOS)
    first, second = sorted((tmp_path / "artefacts").iterdir())
    written = {path.name: path.read_bytes() for path in (first, second)}
    first.unlink()
    second.write_bytes(written[second.name].replace(b"tick: 0", b"tick: 1"))
    with Store(tmp_path) as store:
        Suite(SCENARIOS, store)
    assert {name: (tmp_path / "artefacts" / name).read_bytes() for name in written} == written
    assert sorted(store.restored) == sorted(
        [
            f"{first}: was missing; it was written again",
            f"{second}: was damaged, and stays as {second.name}.damaged-1; it was written again",
        ]
    )
    with Store(tmp_path) as store:
        Suite(SCENARIOS, store)
    assert store.restored == []


@pytest.mark.parametrize(
    ("comment", "is_sound"), [(b"# mine: ", True), (b"# \x01", False), (b"# \xff", False), (b"", True)]
)
def test_a_comment_of_an_artefact_may_be_edited_as_long_as_it_can_be_read(
    tmp_path: Path, comment: bytes, is_sound: bool
) -> None:
    run(tmp_path, SCENARIOS)
    path, *_ = (tmp_path / "artefacts").iterdir()
    edited = comment + path.read_bytes()
    path.write_bytes(edited)
    with Store(tmp_path) as store:
        Suite(SCENARIOS, store)
    assert (path.read_bytes() == edited) is is_sound
    assert len(store.restored) == (not is_sound)
