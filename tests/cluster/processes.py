"""Processes and their sockets, read from the operating system (Linux)."""

import os
from pathlib import Path

_LISTEN = "0A"
_LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def descendants(pid: int) -> set[int]:
    """Return the descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


def listening(pids: set[int]) -> dict[str, bool]:
    """Return listening TCP sockets as `pid:port`, each with whether it is on loopback only."""
    owner: dict[str, int] = {}
    for pid in pids:
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        owner |= {link[8:-1]: pid for link in links if link.startswith("socket:[")}
    sockets = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not Path(table).exists():
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            address, _, port = columns[1].partition(":")
            if columns[3] == _LISTEN and columns[9] in owner:
                sockets[f"{owner[columns[9]]}:{int(port, 16)}"] = address in _LOOPBACK
    return sockets


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def runs_below(pid: int, program: str) -> bool:
    """Return whether a descendant of a process runs a program of this name."""
    for child in descendants(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if program.encode() in command:
            return True
    return False
