"""Archives of campaigns: packing, unpacking, damaged and hostile archives."""

import base64
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from cluster.cli import main as cli
from cluster.dispatch.origin import ROOT
from cluster.dispatch.ray_job import FOLDER_VARIABLE
from cluster.storage import archive
from cluster.storage.archive import ArchiveError, is_campaign_file, pack_command, unpack


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


def test_lines_of_ray_in_a_job_log_are_ignored(tmp_path: Path) -> None:
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
        packed(("a", b"a" * 99)).replace("specstorm-archive-end", "AAAA\nspecstorm-archive-end")[:60],
    ],
    ids=["nothing", "without an end", "no archive", "cut off"],
)
def test_nothing_is_unpacked_from_a_damaged_archive(tmp_path: Path, log: str) -> None:
    assert unpack(log, tmp_path / "campaigns" / "a") is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def logged(write: Callable[[tarfile.TarFile], object], form: int = tarfile.USTAR_FORMAT) -> str:
    """Return a job's log with an archive; `write` adds its members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=form) as tar:
        write(tar)
    text = base64.encodebytes(buffer.getvalue()).decode()
    return f"specstorm-archive-whole\n{text}specstorm-archive-end\n"


def member(name: str, kind: bytes = tarfile.REGTYPE, **values: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in values.items():
        setattr(info, key, value)
    return info


def many(tar: tarfile.TarFile) -> None:
    for index in range(archive.MEMBERS_MAX + 1):
        tar.addfile(tarfile.TarInfo(f"f{index}"))


def bomb(tar: tarfile.TarFile) -> None:
    with Path("/dev/zero").open("rb") as zeros:
        tar.addfile(member("zeros", size=archive.UNPACKED_BYTES_MAX + 1), cast(io.BytesIO, zeros))


def pax(tar: tarfile.TarFile) -> None:
    tar.addfile(member("report.txt", pax_headers={"mtime": "1e308"}))


def nested(tar: tarfile.TarFile) -> None:
    """Write 1,200 tar headers in a row; each one claims to describe the next."""
    for _ in range(1200):
        tar.fileobj.write(member("x", b"x").tobuf())


def twice(tar: tarfile.TarFile) -> None:
    for _ in range(2):
        tar.addfile(member("report.txt"))


def in_two_cases(tar: tarfile.TarFile) -> None:
    for name in ("artefacts/a.yaml", "artefacts/A.yaml"):
        tar.addfile(member(name))


HOSTILE: dict[str, tuple[Callable[[tarfile.TarFile], object], int, str]] = {
    "many": (many, tarfile.USTAR_FORMAT, "more than 50 members"),
    "bomb": (bomb, tarfile.USTAR_FORMAT, "more than 1,048,576 bytes"),
    "time": (pax, tarfile.PAX_FORMAT, "of type b'x'"),
    "nested headers": (nested, tarfile.USTAR_FORMAT, "of type b'x'"),
    "deep": (lambda tar: tar.addfile(member("d/" * 1500 + "f")), tarfile.GNU_FORMAT, "of type b'L'"),
    "deep, as PAX": (lambda tar: tar.addfile(member("d/" * 1500 + "f")), tarfile.PAX_FORMAT, "of type b'x'"),
    "symbolic link": (lambda tar: tar.addfile(member("a", tarfile.SYMTYPE, linkname="/")), 0, "of type b'2'"),
    "hard link": (lambda tar: tar.addfile(member("a", tarfile.LNKTYPE, linkname="b")), 0, "of type b'1'"),
    "device": (lambda tar: tar.addfile(member("a", tarfile.CHRTYPE)), 0, "of type b'3'"),
    "pipe": (lambda tar: tar.addfile(member("a", tarfile.FIFOTYPE)), 0, "of type b'6'"),
    "sparse file": (lambda tar: tar.addfile(member("a", tarfile.GNUTYPE_SPARSE)), 0, "of type b'S'"),
    "outside": (lambda tar: tar.addfile(member("../../outside")), 0, "is outside of the campaign"),
    "inside and out": (lambda tar: tar.addfile(member("artefacts/../../a.yaml")), 0, "is outside of the campaign"),
    "absolute": (lambda tar: tar.addfile(member("/tmp/outside")), 0, "is outside of the campaign"),
    "twice": (twice, 0, "appears twice"),
    "in two cases": (in_two_cases, 0, "appears twice"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_unpack_refuses_a_hostile_archive_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(archive, "MEMBERS_MAX", 50)
    monkeypatch.setattr(archive, "UNPACKED_BYTES_MAX", 1 << 20)
    write, form, why = HOSTILE[kind]
    with pytest.raises(ArchiveError) as caught:
        unpack(logged(write, form or tarfile.USTAR_FORMAT), tmp_path / "campaigns" / "a")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 400
    assert [*tmp_path.iterdir()] == []


OTHERS = (
    "pyproject.toml",
    "conftest.py",
    "artefacts/conftest.py",
    "artefacts/run.sh",
    ".git/config",
    "artefacts/.hidden.yaml",
    ".report.html.tmp",
    "job.json",
    "campaign.lock",
    "CAMPAIGN.SQLITE",
    "regressions/regressions/report.txt",
    "artefacts/a/b.yaml",
    "report.txt\n",
    "artefacts/-rf.yaml",
    "specstorm/__init__.py",
    "sitecustomize.py",
)


def test_unpack_leaves_out_files_that_no_campaign_has(tmp_path: Path) -> None:
    home = tmp_path / "a"
    found = unpack(packed(*((name, b"x") for name in (*OTHERS, "report.txt"))), home)
    assert found is not None
    assert found.left_out == tuple(sorted(OTHERS))
    assert [path.name for path in home.rglob("*")] == ["report.txt"]


def test_unpacked_files_are_for_their_owner_and_not_executable(tmp_path: Path) -> None:
    def write(tar: tarfile.TarFile) -> None:
        tar.addfile(member("artefacts", tarfile.DIRTYPE, mode=0o7777))
        tar.addfile(member("artefacts/a.yaml", mode=0o7777, uid=1, gid=1, uname="root", gname="root"))
        tar.addfile(member("regressions/snapshot/00ff/0001.yaml", mode=0o7777))

    old = os.umask(0)
    try:
        assert unpack(logged(write), tmp_path / "a") is not None
    finally:
        os.umask(old)
    modes = {path: path.stat().st_mode for path in (tmp_path / "a", *(tmp_path / "a").rglob("*"))}
    assert {stat.S_IMODE(mode) for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {stat.S_IMODE(mode) for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert sum(path.is_file() for path in modes) == 2


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


def test_every_file_of_a_campaign_that_commands_write_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = Path(ROOT, "scenarios", "smoke", "condense_with_counts_on_the_host.yaml")
    fault = ("--fault", "vllm-38556-accepted-counts")
    assert cli.run(["run", str(scenario), *fault, "--ray", "off", "--out", "a"]) == 1
    assert cli.run(["report", "a"]) == 0
    written = {path.relative_to("a").as_posix() for path in Path("a").rglob("*") if path.is_file()}
    assert {path for path in written if not is_campaign_file(path)} == {"campaign.lock"}
    assert len(written) > 6
    capsys.readouterr()
