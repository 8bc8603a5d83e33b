"""Archive of a campaign, transferred through the log of a small job.

The job packs it on the head node; this machine reads the log and unpacks it.
"""

import base64
import binascii
import json
import os
import re
import shlex
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cluster.dispatch.inside import move_inside, remove_inside, write_inside
from cluster.dispatch.ray_job import CAMPAIGNS, FOLDER_IN_SHELL
from scenarios.input_file import read_file
from scenarios.strict_json import read_json
from scenarios.visible import visible_line

WHOLE_KILOBYTES_MAX = 64 * 1024
ORIGIN = "job.json"
# Limits of an unpacked archive: a malicious one may expand far more than a store does.
UNPACKED_BYTES_MAX = 4 * 1024 * WHOLE_KILOBYTES_MAX
MEMBERS_MAX = 100_000
_WHOLE, _PART, _END = "specstorm-archive-whole", "specstorm-archive-part", "specstorm-archive-end"
# Files that are packed of a campaign whose store is too large for a log.
_PART_PATTERNS = "*.txt *.json *.jsonl *.html *.xml *.sarif"
# Paths of a campaign's files; others in an archive are left out.
_WORD = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
_CAMPAIGN_FILE = re.compile(
    "(?:regressions/)?(?:"
    r"campaign\.sqlite(?:\.damaged-[0-9]{1,4})?(?:-wal|-shm)?"
    r"|(?:report|junit|results|progress|gate|faults)\.(?:txt|json|jsonl|html|xml|sarif)"
    r"|(?:survival|kill_matrix)\.svg"
    rf"|(?:artefacts|seldom|running)/{_WORD}\.yaml(?:\.damaged-[0-9]{{1,4}})?"
    rf"|snapshot/[0-9a-f]{{1,64}}/{_WORD}\.yaml"
    rf"|timelines/{_WORD}\.json"
    ")"
)
NAME_SHOWN_MAX = 120
ORIGIN_BYTES_MAX = 64 * 1024
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class ArchiveError(ValueError):
    """An archive contains a forbidden member, which the message names."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was unpacked: number of artefacts, and what was left out.

    `is_whole` is unset for a campaign whose store was too large for the log.
    """

    artefacts: int
    is_whole: bool
    left_out: tuple[str, ...] = ()


def pack_command(campaign: str) -> str:
    """Return the shell command that prints a campaign as text, compressed.

    `campaign` is its path on the machine of the job.
    """
    path = Path(campaign)
    if path.is_absolute():
        folder = shlex.quote(campaign)
    else:
        folder = f"{FOLDER_IN_SHELL}/{shlex.quote(str(path.relative_to(CAMPAIGNS)))}"
    size = "kilobytes=$(du -sk . | cut -f1)"
    whole = f"echo {_WHOLE}; set -- ."
    part = f"echo {_PART}; set -- artefacts $(ls {_PART_PATTERNS} 2>/dev/null)"
    choose = f'if [ "$kilobytes" -le {WHOLE_KILOBYTES_MAX} ]; then {whole}; else {part}; fi'
    pack = 'tar --format=ustar --owner=0 --group=0 -czf - --exclude=campaign.lock "$@" 2>/dev/null | base64'
    return f"cd {folder} && {size} && {choose} && {pack} && echo {_END}"


def unpack(log: str, home: Path) -> Unpacked | None:
    """Unpack a campaign from the log of the `pack_command` job.

    None if the log is incomplete or damaged.

    Files get mode 0600 and new folders 0700, independent of the archive. Files with other names than a campaign's are
    left out. Files unpacked earlier are replaced or stay. Ray may insert its own lines into a job log at any place:
    lines that do not belong to the archive are skipped.

    Raises:
        ArchiveError: the archive has a member that `tar` does not write for a campaign; nothing is unpacked.
    """
    lines = log.splitlines()
    begin = next((index for index, line in enumerate(lines) if line in (_WHOLE, _PART)), None)
    if begin is None or _END not in lines[begin:]:
        return None
    end = lines.index(_END, begin)
    try:
        packed = base64.b64decode("".join(filter(_BASE64.fullmatch, lines[begin + 1 : end])), validate=True)
        files = _files(_decompress(packed))
    except (binascii.Error, zlib.error, tarfile.HeaderError, UnicodeDecodeError):
        return None
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as folder:
        kept = {path: content for path, content in files.items() if is_campaign_file(path)}
        for path, content in kept.items():
            write_inside(Path(folder), path, content, is_private=True)
        _move(Path(folder), home, list(kept))
    left_out = tuple(sorted(files.keys() - kept.keys()))
    return Unpacked(len(list((home / "artefacts").glob("*.yaml"))), lines[begin] == _WHOLE, left_out)


def is_campaign_file(path: str) -> bool:
    """Return whether a path, relative to a campaign, is a file of a campaign."""
    return _CAMPAIGN_FILE.fullmatch(path) is not None


def _decompress(packed: bytes) -> bytes:
    """Return the decompressed content of a gzip file.

    Raises:
        ArchiveError: the content is larger than `UNPACKED_BYTES_MAX`.
        zlib.error: the file is not in gzip format, or cut off.
    """
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    content = stream.decompress(packed, UNPACKED_BYTES_MAX)
    if stream.unconsumed_tail:
        raise ArchiveError(f"it unpacks to more than {UNPACKED_BYTES_MAX:,} bytes, the limit")
    if not stream.eof:
        raise zlib.error("cut off")
    return content


def _files(content: bytes) -> dict[str, bytes]:
    """Return the regular files of a tar archive by path.

    Headers are read one by one. Headers that change the meaning of the next one are refused: no links, no long names,
    no extended attributes, no sparse files.

    Raises:
        ArchiveError: a member is neither a file nor a folder, is outside, or appears twice, or there are too many.
        HeaderError: the archive is damaged or cut off.
        UnicodeDecodeError: a name is not UTF-8.
    """
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    at = count = 0
    while any(header := content[at : at + tarfile.BLOCKSIZE]):
        member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        count += 1
        if count > MEMBERS_MAX:
            raise ArchiveError(f"it has more than {MEMBERS_MAX:,} members, the limit")
        name = visible_name(member.name)
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            raise ArchiveError(f"member {name} is of type {member.type!r}; regular files and folders are allowed")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise ArchiveError(f"member {name} is outside of the campaign")
        at += tarfile.BLOCKSIZE
        if member.type == tarfile.DIRTYPE:
            continue
        if not 0 <= member.size <= len(content) - at:
            raise tarfile.HeaderError(f"member {name} has {member.size} bytes")
        # Two names may be equal on a file system that ignores case.
        if path.as_posix().casefold() in seen:
            raise ArchiveError(f"member {name} appears twice; each file goes once")
        seen.add(path.as_posix().casefold())
        files[path.as_posix()] = content[at : at + member.size]
        at += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return files


def visible_name(name: str) -> str:
    """Return a member's name as one printable word."""
    shown = visible_line(name)
    return shown if len(shown) <= NAME_SHOWN_MAX else f"{shown[:NAME_SHOWN_MAX]}... ({len(shown):,} characters)"


def _move(source: Path, home: Path, paths: Sequence[str]) -> None:
    """Move files into a folder, replacing files of the same name.

    Remove the traces of finished jobs.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(home / "running", ignore_errors=True)
    for journal in home.glob("campaign.sqlite-*"):
        remove_inside(home, journal.name)
    for path in sorted(paths):
        move_inside(source / path, home, path)


def note_origin(home: Path, job: str, server: str, folder: str) -> None:
    """Record from which job, server and folder a campaign was fetched."""
    values = {"job": job, "server": server, "folder": folder}
    write_inside(home, ORIGIN, json.dumps(values, indent=2) + "\n")


def is_of_this_machine(home: Path) -> bool:
    """Return whether a campaign was started on this machine.

    A fetched one must not overwrite it.
    """
    return (home / "campaign.sqlite").exists() and not (home / ORIGIN).exists()


def in_the_way(home: Path, job: str = "", server: str = "") -> str | None:
    """Return why a campaign cannot be fetched to a folder; None if it can.

    Reasons are a link, a campaign of this machine, and the files of another job. Without a job, when the user gave the
    folder, a campaign that was fetched earlier may be replaced.
    """
    if not home.resolve().is_relative_to(CAMPAIGNS.resolve()):
        return f"{home}: leads out of {CAMPAIGNS}/ by a link"
    for below, names, _ in os.walk(home):
        link = next((path for path in (Path(below, name) for name in sorted(names)) if path.is_symlink()), None)
        if link is not None:
            return f"{link}: is a link; files unpacked below it would be elsewhere"
    folders = [home, *home.parents]
    for folder in folders[: folders.index(CAMPAIGNS)]:
        if is_of_this_machine(folder):
            return f"{folder}: is a campaign of this machine, no job's"
        owner = _origin(folder)
        if owner is not None and job and (folder != home or owner != (job, server)):
            return f"{folder}: holds the campaign of {visible_line('job {} at {}'.format(*owner))}; move it away"
    if job and _origin(home) is None and home.is_dir() and any(home.iterdir()):
        return f"{home}: holds files of no job; move it away"
    return None


def _origin(home: Path) -> tuple[str, str] | None:
    """Return the job and server from which a folder was fetched; None if it was not."""
    try:
        values = read_json(read_file(home / ORIGIN, ORIGIN_BYTES_MAX))
        return str(values["job"]), str(values["server"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown", "unknown"
