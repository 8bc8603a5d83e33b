"""Paths inside a folder: no name and no link leads out of it, whatever reads or writes."""

from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch.inside import LeavesFolderError, files_inside, inside, make_inside, write_inside
from cluster.storage.errors import CampaignError, StoreError
from cluster.storage.merging import merge
from cluster.storage.store import Store
from tests.cluster.fake_judge import difference
from tests.cluster.reports.page.campaigns import campaign_of, judged


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/../../x", "/x", "a/\0", "link", "link/x", "a/link/x"])
def test_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "a").mkdir(parents=True)
    outside.mkdir()
    for link in (folder / "link", folder / "a" / "link"):
        link.symlink_to(outside)
    with pytest.raises(LeavesFolderError):
        write_inside(folder, name, "x")
    with pytest.raises(LeavesFolderError):
        make_inside(folder, name)
    assert list(outside.iterdir()) == []


def test_a_file_is_written_with_the_folders_between_and_a_linked_one_is_not_read(tmp_path: Path) -> None:
    written = write_inside(tmp_path / "folder", "a/b.yaml", "x")
    assert written == inside(tmp_path / "folder", "a/b.yaml")
    assert written.read_text() == "x"
    (tmp_path / "folder" / "a" / "c.yaml").symlink_to(written)
    assert list(files_inside(tmp_path / "folder", "a/*.yaml")) == [written]


@pytest.mark.parametrize("name", ["artefacts", "running", "campaign.sqlite", "campaign.sqlite-wal", "campaign.lock"])
def test_no_link_in_a_campaign_is_written_through(name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "artefacts").mkdir(parents=True)
    (outside / "file").write_text("mine")
    folder = tmp_path / "campaign"
    folder.mkdir()
    (folder / name).symlink_to(outside / ("artefacts" if name in ("artefacts", "running") else "file"))
    for write in (lambda: Store(folder), lambda: merge([], folder)):
        with pytest.raises((CampaignError, StoreError)):
            write()
    assert (outside / "file").read_text() == "mine"
    assert list((outside / "artefacts").iterdir()) == []


def test_a_report_writes_no_timeline_through_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, outside = campaign_of(tmp_path / "campaign", {"a": judged("agree")}), tmp_path / "outside"
    outside.mkdir()
    (folder / "timelines").symlink_to(outside)
    with pytest.raises(LeavesFolderError):
        write_inside(folder, "timelines/kv-0.json", "{}")
    assert cli.run(["report", str(folder)]) == 0
    assert list(outside.iterdir()) == []


def test_a_merge_copies_no_file_that_a_link_leads_to(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = campaign_of(tmp_path / "campaign", {"a": judged("agree")})
    (folder / "artefacts" / "kv-00000000.yaml").symlink_to(secret)
    merge([folder], tmp_path / "out")
    assert list((tmp_path / "out" / "artefacts").iterdir()) == []


@pytest.mark.parametrize("plane", ["../../x", "/etc/x", "", "a.b", "KV", "kv\n", "\u202ekv", ".kv", "k" * 50])
def test_a_plane_that_is_no_safe_name_is_refused(plane: str) -> None:
    text = difference("a").model_dump_json()
    with pytest.raises(ValueError, match="plane"):
        type(difference("a")).model_validate({**difference("a").model_dump(), "plane": plane})
    assert type(difference("a")).model_validate_json(text).plane == "recurrent"
