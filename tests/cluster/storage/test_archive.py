"""Archives of campaigns: packed, unpacked, and what of a damaged or hostile one is not unpacked."""

import base64
import io
import subprocess
import tarfile
from pathlib import Path
from typing import cast

import pytest

from cluster.dispatch.ray_job import FOLDER_VARIABLE
from cluster.storage import archive
from cluster.storage.archive import pack_command, unpack


def packed(
    *members: tuple[str, bytes], mark: str = "specstorm-archive-whole", end: str = "specstorm-archive-end"
) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return f"Running entrypoint\n{mark}\n{base64.encodebytes(buffer.getvalue()).decode()}{end}\n"


def test_unpacking_replaces_the_campaign_s_own_files_and_leaves_others(tmp_path: Path) -> None:
    home = tmp_path / "campaigns" / "a"
    first = packed(("./campaign.sqlite", b"1"), ("./running/x.yaml", b"x"), ("./campaign.sqlite-wal", b"w"))
    assert unpack(first, home) is not None
    (home / "notes.txt").write_text("mine")
    found = unpack(packed(("./campaign.sqlite", b"2"), ("./artefacts/kv-1.yaml", b"a")), home)
    assert found is not None
    assert (found.artefacts, found.is_whole) == (1, True)
    files = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert files == {"campaign.sqlite": "2", "artefacts/kv-1.yaml": "a", "notes.txt": "mine"}
    assert [path.name for path in home.parent.iterdir()] == ["a"]


def test_lines_that_ray_writes_into_a_log_are_none_of_the_archive(tmp_path: Path) -> None:
    log = packed(("./campaign.sqlite", bytes(range(200))))
    log = log.replace("\nH4s", "\n2026-11-22 15:26:10 INFO job_manager.py -- Runtime env is set up.\nH4s")
    assert "INFO" in log
    assert unpack(log, tmp_path / "a") is not None
    assert (tmp_path / "a" / "campaign.sqlite").read_bytes() == bytes(range(200))


@pytest.mark.parametrize(
    "log",
    [
        "",
        packed(("a", b"a"), end="cut off"),
        packed(("a", b"a")).replace("H4s", "????"),
        packed(("../../outside", b"a")),
        packed(("a", b"a" * 99)).replace("specstorm-archive-end", "AAAA\nspecstorm-archive-end")[:60],
    ],
    ids=["nothing", "without an end", "no archive", "outside", "cut off"],
)
def test_nothing_is_unpacked_from_a_damaged_or_hostile_archive(tmp_path: Path, log: str) -> None:
    assert unpack(log, tmp_path / "campaigns" / "a") is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def hostile(kind: str) -> str:
    """Return the log of a job that has printed an archive made to do harm."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        if kind == "many":
            for index in range(archive.MEMBERS_MAX + 1):
                tar.addfile(tarfile.TarInfo(f"f{index}"))
        elif kind == "bomb":
            info = tarfile.TarInfo("zeros")
            info.size = archive.UNPACKED_BYTES_MAX + 1
            with Path("/dev/zero").open("rb") as zeros:
                tar.addfile(info, cast(io.BytesIO, zeros))
        else:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = {
                "symlink": (tarfile.SYMTYPE, "artefacts"),
                "hard link": (tarfile.LNKTYPE, "a"),
                "device": (tarfile.CHRTYPE, ""),
                "pipe": (tarfile.FIFOTYPE, ""),
            }[kind]
            tar.addfile(tarfile.TarInfo("a"))
            tar.addfile(info)
    text = base64.encodebytes(buffer.getvalue()).decode()
    return f"specstorm-archive-whole\n{text}specstorm-archive-end\n"


@pytest.mark.parametrize("kind", ["many", "bomb", "symlink", "hard link", "device", "pipe"])
def test_links_devices_and_what_would_fill_a_disk_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(archive, "MEMBERS_MAX", 50)
    monkeypatch.setattr(archive, "UNPACKED_BYTES_MAX", 1 << 20)
    assert unpack(hostile(kind), tmp_path / "campaigns" / "a") is None
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


@pytest.mark.parametrize("kilobytes_max", [archive.WHOLE_KILOBYTES_MAX, 0])
def test_a_packed_campaign_is_unpacked_and_a_large_one_without_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kilobytes_max: int
) -> None:
    monkeypatch.setattr(archive, "WHOLE_KILOBYTES_MAX", kilobytes_max)
    folder = tmp_path / "there" / "a night" / "artefacts"
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"kv-{number:08x}.yaml").write_text("events: []\n")
    for name in ("campaign.sqlite", "campaign.lock", "report.json"):
        (tmp_path / "there" / "a night" / name).write_text(name)
    environment = {"PATH": "/usr/bin:/bin", FOLDER_VARIABLE: str(tmp_path / "there")}
    command = ["/bin/sh", "-c", pack_command("campaigns/a night")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = unpack(done.stdout, tmp_path / "home")
    assert found is not None
    assert (found.artefacts, found.is_whole) == (2, kilobytes_max > 0)
    names = {path.name for path in (tmp_path / "home").iterdir()}
    assert names == {"artefacts", "report.json", *(["campaign.sqlite"] if kilobytes_max else [])}
