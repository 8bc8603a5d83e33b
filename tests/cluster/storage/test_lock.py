"""The lock of a campaign folder: one writer, and removal only of new campaigns."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Event

import pytest

from cluster.cli.campaign import code_of, open_store
from cluster.dispatch.host import ReachError
from cluster.dispatch.origin import ROOT
from cluster.storage import lock
from cluster.storage.errors import CampaignError, StoreError
from cluster.storage.known import keep_seen, read_seen
from cluster.storage.lock import EDIT_LOCK, LOCK, HeldError, claim, claim_next, editing, is_locked
from cluster.storage.store import Store

HOLD = """
import sys
from pathlib import Path
from cluster.storage.lock import claim
claimed = claim(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_claim_that_is_given_up_removes_the_folders_made_for_it(tmp_path: Path) -> None:
    claimed = claim(tmp_path / "a" / "b" / "c")
    assert claimed.is_new
    assert is_locked(claimed.folder)
    claimed.give_up()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", ["lost+found", ".hidden", "a file of others", "artefacts/report.html"])
def test_a_claim_that_is_given_up_leaves_what_was_there(tmp_path: Path, kept: str) -> None:
    (tmp_path / kept).parent.mkdir(exist_ok=True)
    (tmp_path / kept).write_text("kept")
    claim(tmp_path).give_up()
    assert (tmp_path / kept).read_text() == "kept"


def test_a_claim_that_is_given_up_leaves_a_file_written_meanwhile(tmp_path: Path) -> None:
    claimed = claim(tmp_path / "x")
    (tmp_path / "x" / "report.html").write_text("<html>")
    claimed.give_up()
    assert os.listdir(tmp_path / "x") == ["report.html"]


def test_a_folder_is_claimed_by_one_process_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path / "x") as store:
        before = sorted(path.name for path in store.folder.iterdir())
        with pytest.raises(HeldError, match="another process is writing this campaign; give another --out"):
            claim(tmp_path / "x")
        assert sorted(path.name for path in store.folder.iterdir()) == before


def test_a_process_that_waits_for_a_removed_lock_gets_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, locked = Event(), lock._lock

    def tell(*arguments: object) -> None:
        waits.set()
        locked(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lock, "MOMENT_SECONDS", 60.0)
    first = claim(tmp_path / "x")
    monkeypatch.setattr(lock, "_lock", tell)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(claim, tmp_path / "x")
        assert waits.wait(60)
        first.give_up()
        second = waiting.result()
    assert second.is_in_place
    assert second.is_new
    second.give_up()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_free_and_its_empty_folder_new(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(HeldError):
        claim(folder)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    claimed = claim(folder)
    assert claimed.is_new
    claimed.release()
    assert (folder / LOCK).exists()


def test_numbered_folders_claimed_at_once_are_different(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: claim_next(tmp_path / "campaigns", "run"), range(8)))
    assert sorted(each.folder.name for each in claims) == [f"run-{number:04d}" for number in range(1, 9)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: each.give_up(), claims))
    assert list(tmp_path.rglob("run-*")) == []


def test_a_campaign_that_cannot_reach_ray_is_removed_only_if_it_is_new(tmp_path: Path) -> None:
    def fail() -> None:
        with Store(tmp_path / "x"):
            raise ReachError("nothing listens there")

    with pytest.raises(ReachError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with Store(tmp_path / "x") as store:
        run = store.run.run
    with pytest.raises(ReachError):
        fail()
    with Store(tmp_path / "x") as store:
        assert run in [each.run for each in store.runs()]


def moved(folder: Path) -> None:
    """Move a campaign folder away while a process writes it."""
    folder.rename(folder.with_name("elsewhere"))


def replaced(folder: Path) -> None:
    """Replace a campaign folder, while a process writes it, by another campaign."""
    shutil.rmtree(folder)
    Store(folder).close()


@pytest.mark.parametrize("harm", [shutil.rmtree, moved, replaced])
def test_a_campaign_whose_folder_is_removed_meanwhile_never_ends_with_exit_code_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None]
) -> None:
    with open_store(tmp_path / "x") as store:
        harm(tmp_path / "x")
    assert (code_of(store, 0), code_of(store, 1)) == (3, 1)
    assert capsys.readouterr().err


def test_sightings_of_nights_at_once_are_all_kept(tmp_path: Path) -> None:
    bugs = [f"bug {number}" for number in range(8)]
    with ThreadPoolExecutor(len(bugs)) as threads:
        list(threads.map(lambda bug: keep_seen(tmp_path / "known", [bug], date(2026, 11, 28)), bugs))
    assert sorted(read_seen(tmp_path / "known")) == bugs
    assert os.listdir(tmp_path / "known") == ["seen.json"]


def test_a_folder_of_known_findings_that_stays_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "EDIT_SECONDS", 0.0)
    with editing(tmp_path), pytest.raises(StoreError, match="locked by another process for 0 s"):
        keep_seen(tmp_path, ["bug"], date(2026, 11, 28))
    assert not (tmp_path / EDIT_LOCK).exists()


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CampaignError, match="cannot be written: File exists; give another --out"):
        claim(tmp_path / "file" / "x")


def other_version(store: Store) -> None:
    """Store a run with an additional key, as a later version might."""
    run = {**json.loads(store.run.model_dump_json()), "run": "later", "colour": "red"}
    assert store._db.insert("runs", ("later", json.dumps(run)))


def test_a_campaign_of_a_later_version_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        other_version(store)
    with pytest.raises(CampaignError, match=r"cannot read: about: .*colour: .*use the version that wrote it"):
        open_store(tmp_path).__enter__()
    assert not is_locked(tmp_path)


def test_rows_of_a_later_version_that_cannot_be_listed_never_end_with_exit_code_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path) as store:
        other_version(store)
    assert code_of(store, 0) == 3
    assert "holds what this version cannot read: about: " in capsys.readouterr().err
