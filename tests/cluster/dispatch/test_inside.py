"""Safe paths inside a folder: neither a name nor a link leads out of it."""

import ast
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

import pytest

from cluster.cli import main as cli
from cluster.dispatch.inside import (
    LeavesFolderError,
    files_inside,
    inside,
    make_inside,
    move_inside,
    remove_inside,
    write_inside,
)
from cluster.dispatch.job import Job
from cluster.dispatch.origin import ROOT
from cluster.storage.errors import CampaignError, StoreError
from cluster.storage.merging import merge
from cluster.storage.store import Store
from tests.cluster.fake_judge import FakeJudge, difference, trace
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


def test_remove_and_move_inside_follow_no_link(tmp_path: Path) -> None:
    folder, outside, source = tmp_path / "folder", tmp_path / "outside", tmp_path / "source"
    for each in (folder, outside):
        each.mkdir()
    (outside / "x").write_text("mine")
    source.write_text("new")
    (folder / "link").symlink_to(outside)
    with pytest.raises(LeavesFolderError):
        remove_inside(folder, "link/x")
    with pytest.raises(LeavesFolderError):
        move_inside(source, folder, "link/x")
    assert (outside / "x").read_text() == "mine"
    move_inside(source, folder, "a/x")
    assert (folder / "a" / "x").read_text() == "new"
    for _ in range(2):
        remove_inside(folder, "a/x")
    assert list((folder / "a").iterdir()) == []


def test_write_inside_while_a_folder_becomes_a_link_stays_inside(tmp_path: Path) -> None:
    """Each write ends inside the folder or is refused, whenever another process replaces a folder by a link."""
    folder, outside, real = tmp_path / "folder", tmp_path / "outside", tmp_path / "real"
    for each in (folder, outside, real):
        each.mkdir()
    part, has_ended = folder / "part", threading.Event()

    def swap() -> None:
        while not has_ended.is_set():
            with suppress(OSError):
                part.symlink_to(outside)
            with suppress(OSError):
                part.unlink()
            with suppress(OSError):
                os.rename(real, part)
            with suppress(OSError):
                os.rename(part, real)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(300):
            with suppress(OSError):
                write_inside(folder, f"part/{number}", "x")
    finally:
        has_ended.set()
        thread.join()
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


def test_a_store_whose_artefacts_become_a_link_writes_nothing_outside(tmp_path: Path) -> None:
    outside, found = tmp_path / "outside", FakeJudge().judge(trace("diverge"), True)
    outside.mkdir()
    with Store(tmp_path / "campaign") as store:
        for name in ("artefacts", "running"):
            (store.folder / name).rmdir()
            (store.folder / name).symlink_to(outside)
        job = Job.of(found.trace, sweep=True)
        for write in (
            lambda: store.begin(job, 1, 0, "a"),
            lambda: store.record(job, 1, found, "a"),
            lambda: store.restore_artefact(found, "a", job.config),
        ):
            with pytest.raises(StoreError, match="is a link, which may lead out of its folder"):
                write()
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


# Calls that write, move or remove files, by their last name.
CHANGES = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "rename", "renames", "unlink", "rmdir", "truncate"),
    *("symlink", "symlink_to", "hardlink_to", "chmod", "mknod", "mkfifo"),
    *("copy2", "copyfile", "copytree", "rmtree", "extractall", "savefig", "savez"),
    *("NamedTemporaryFile", "mkstemp", "ZipFile", "whole_file"),
}
CHANGES_OF = {
    "os": {"open", "fdopen", "link", "remove", "replace"},
    "shutil": {"copy", "move"},
    "sqlite3": {"connect"},
    "np": {"save"},
}
# Modules that change files by other calls than `cluster.dispatch.inside`, and why they may.
OTHER_WRITERS = {
    "cluster.campaigns.commits": "a temporary folder with a tree of the engine's sources",
    "cluster.campaigns.regressions": "scenario files of this checkout",
    "cluster.cli.doctor_command": "a temporary folder of its own",
    "cluster.cli.executed": "the record of executed functions in this checkout",
    "cluster.cli.finding_history": "makes the folder that the user named",
    "cluster.dispatch.inside": "the functions themselves",
    "cluster.dispatch.pool": "the token of a private Ray, in a temporary folder",
    "cluster.dispatch.ray_job": "the folder `campaigns`, outside any campaign",
    "cluster.dispatch.runtime_environment": "a temporary folder that is sent to Ray",
    "cluster.dispatch.session": "the null device",
    "cluster.statistics.figures": "draws a picture into memory",
    "cluster.dispatch.whole_file": "names in an open folder, which `inside` has opened",
    "cluster.reports.fault_page": "a page of this checkout",
    "cluster.reports.terminal": "the null device",
    "cluster.storage.archive": "unpacks into a campaign in which `in_the_way` found no link; files by `move_inside`",
    "cluster.storage.artefact": "renames a damaged artefact within the folder that `inside` returned",
    "cluster.storage.corpus": "removes and renames a folder that `inside` returned",
    "cluster.storage.database": "SQLite and its repair, on names that `inside` returned or that are free",
    "cluster.storage.lock": "makes and removes a campaign; its lock is opened without following a link",
}


def changes_of(path: Path) -> set[str]:
    """Return the calls in a source file that may change files."""
    found = set()
    for node in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
        owner, _, name = ast.unparse(node.func).rpartition(".")
        given = [each.value for each in (*node.args, *(word.value for word in node.keywords)) if is_constant(each)]
        texts = [each for each in given if isinstance(each, str) and each]
        opens = name == "open" and any(set(text) <= set("rwxab+t") and set(text) & set("wxa+") for text in texts)
        # `Path.replace` takes one argument, `str.replace` two.
        replaces = name == "replace" and owner != "" and len(node.args) == 1 and not node.keywords
        if name in CHANGES or name in CHANGES_OF.get(owner, set()) or opens or replaces:
            found.add(f"{owner}.{name}")
    return found


def is_constant(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant)


def test_no_other_module_writes_files() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): changes
        for path in sorted((ROOT / "cluster").rglob("*.py"))
        if (changes := changes_of(path))
    }
    others = {module: changes for module, changes in found.items() if module not in OTHER_WRITERS}
    assert others == {}, "write by write_inside or writing_inside of cluster.dispatch.inside"
    assert OTHER_WRITERS.keys() - found.keys() == set(), "these modules write no files"


@pytest.mark.parametrize(
    ("call", "is_writer"),
    [
        ("open(path, 'w')", True),
        ("path.open(mode='ab')", True),
        ("os.replace(a, b)", True),
        ("path.replace(other)", True),
        ("shutil.copy(a, b)", True),
        ("path.write_text(text)", True),
        ("path.open('rb')", False),
        ("text.replace('a', 'b')", False),
    ],
)
def test_a_call_that_writes_a_file_is_found(call: str, is_writer: bool, tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(call)
    assert bool(changes_of(source)) is is_writer
