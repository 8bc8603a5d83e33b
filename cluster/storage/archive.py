"""Archive of a campaign: packed by a small job on the head node, read from that job's log, unpacked on this machine."""

import base64
import binascii
import io
import json
import os
import re
import shlex
import shutil
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cluster.dispatch.ray_job import CAMPAIGNS, FOLDER_IN_SHELL
from cluster.storage.artefact import write_atomically

WHOLE_KILOBYTES_MAX = 64 * 1024
ORIGIN = "job.json"
# Limits on what an archive unpacks to: a store packs well, and what was made to fill a disk packs better.
UNPACKED_BYTES_MAX = 4 * 1024 * WHOLE_KILOBYTES_MAX
MEMBERS_MAX = 100_000
_WHOLE, _PART, _END = "specstorm-archive-whole", "specstorm-archive-part", "specstorm-archive-end"
# Files that are packed, without the store, of a campaign that is too large for a log.
_PART_PATTERNS = "*.txt *.json *.jsonl *.html *.xml *.sarif"
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Result of unpacking: the number of artefacts, and whether the campaign is whole."""

    artefacts: int
    is_whole: bool


def pack_command(campaign: str) -> str:
    """Return the shell command that prints a campaign as text, given its path as the job's driver has it."""
    path = Path(campaign)
    if path.is_absolute():
        folder = shlex.quote(campaign)
    else:
        folder = f"{FOLDER_IN_SHELL}/{shlex.quote(str(path.relative_to(CAMPAIGNS)))}"
    size = "kilobytes=$(du -sk . | cut -f1)"
    whole = f"echo {_WHOLE}; set -- ."
    part = f"echo {_PART}; set -- artefacts $(ls {_PART_PATTERNS} 2>/dev/null)"
    choose = f'if [ "$kilobytes" -le {WHOLE_KILOBYTES_MAX} ]; then {whole}; else {part}; fi'
    pack = 'tar -czf - --exclude=campaign.lock "$@" 2>/dev/null | base64'
    return f"cd {folder} && {size} && {choose} && {pack} && echo {_END}"


def unpack(log: str, home: Path) -> Unpacked | None:
    """Unpack the log of the `pack_command` job into a folder; None if the log is incomplete.

    Nothing but regular files and folders is unpacked: a chain of links leads out of a folder, whatever `tarfile` checks
    (CVE-2025-4517). Files unpacked earlier are replaced; others stay. Ray writes lines of its own into a job's log, at
    any time: lines that are not of the archive are skipped.
    """
    lines = log.splitlines()
    begin = next((index for index, line in enumerate(lines) if line in (_WHOLE, _PART)), None)
    if begin is None or _END not in lines[begin:]:
        return None
    end = lines.index(_END, begin)
    try:
        packed = base64.b64decode("".join(filter(_BASE64.fullmatch, lines[begin + 1 : end])), validate=True)
    except binascii.Error:
        return None
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(_decompressed(packed)), mode="r:") as archive:
                members = list(islice(archive, MEMBERS_MAX + 1))
                if len(members) > MEMBERS_MAX or not all(map(_is_plain, members)):
                    return None
                archive.extractall(folder, members, filter="data")
            _move(Path(folder), home)
        except (tarfile.TarError, OSError, ValueError, zlib.error):
            return None
    return Unpacked(len(list((home / "artefacts").glob("*.yaml"))), lines[begin] == _WHOLE)


def _decompressed(packed: bytes) -> bytes:
    """Return what was compressed by gzip.

    Raises:
        ValueError: it is more than `UNPACKED_BYTES_MAX`, or cut off.
        zlib.error: it is none of gzip's.
    """
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    content = stream.decompress(packed, UNPACKED_BYTES_MAX)
    if not stream.eof:
        raise ValueError(f"more than {UNPACKED_BYTES_MAX} bytes, or cut off")
    return content


def _is_plain(member: tarfile.TarInfo) -> bool:
    return member.isdir() or (member.isreg() and not member.issparse())


def _move(source: Path, home: Path) -> None:
    """Move files into a folder, each over the one of its name; remove traces that are no longer being run."""
    shutil.rmtree(home / "running", ignore_errors=True)
    for journal in home.glob("campaign.sqlite-*"):
        journal.unlink()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        target = home / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)


def note_origin(home: Path, job: str, server: str, folder: str) -> None:
    """Record the job, server and folder that a campaign came from."""
    values = {"job": job, "server": server, "folder": folder}
    write_atomically(home / ORIGIN, json.dumps(values, indent=2) + "\n")


def is_of_this_machine(home: Path) -> bool:
    """Whether a campaign was begun on this machine, so that a fetched one must not overwrite it."""
    return (home / "campaign.sqlite").exists() and not (home / ORIGIN).exists()


def in_the_way(home: Path) -> str | None:
    """Return what stands where a campaign would be fetched to, None if nothing does: another campaign, or a link."""
    if not home.resolve().is_relative_to(CAMPAIGNS.resolve()):
        return f"{home}: leads out of {CAMPAIGNS}/ by a link"
    for folder, names, _ in os.walk(home):
        link = next((path for path in (Path(folder, name) for name in sorted(names)) if path.is_symlink()), None)
        if link is not None:
            return f"{link}: is a link, and what is unpacked below it would be elsewhere"
    folders = [home, *home.parents]
    kept = next((folder for folder in folders[: folders.index(CAMPAIGNS)] if is_of_this_machine(folder)), None)
    return None if kept is None else f"{kept}: is a campaign of this machine, no job's"
