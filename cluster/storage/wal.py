"""Check of a database's write-ahead log: whether a killed process left a complete one.

SQLite reads a log up to its first altered frame, and ignores the rest without an error. Whether there must be a log is
known from `campaign.lock`, which has the name of the run that may have written one.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from scenarios.input_file import read_file

_HEADER_BYTES, _FRAME_BYTES = 32, 24
_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_WORDS = 2**32
LOG_BYTES_MAX = 4 << 30
_GONE = "the last records are lost; run the command again to repeat them"


def log_of(path: Path) -> Path:
    """Return the path of a database's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def damage_of_log(path: Path) -> str | None:
    """Describe the damage of a database's log; None if it is complete, empty, or missing.

    No process may write it during the call. An unfinished transaction is no damage.
    """
    log = log_of(path)
    data = read_file(log, LOG_BYTES_MAX) if log.exists() else b""
    if not data:
        return None
    if not _is_header(data):
        return f"{log}: was damaged (its header was altered or cut off): {_GONE}"
    size = int.from_bytes(data[8:12], "big")
    own = [start for start in range(_HEADER_BYTES, len(data), _FRAME_BYTES + size) if _is_of_this_log(data, start)]
    num_sound = sum(1 for _ in _sound_frames(data, size))
    assert num_sound <= len(own), f"of {len(own)} frames {num_sound} are sound"
    if num_sound == len(own):
        return None
    return f"{log}: was damaged (frame {num_sound + 1} of {len(own)} was altered or cut off): {_GONE}"


def absence_of_log(path: Path) -> str | None:
    """Describe the loss if a killed run's log is missing; None if it exists."""
    log = log_of(path)
    if log.exists() and log.stat().st_size:
        return None
    return f"{log}: is {'empty' if log.exists() else 'missing'}, and the run before was killed: {_GONE}"


def _is_header(data: bytes) -> bool:
    if len(data) < _HEADER_BYTES or int.from_bytes(data[:4], "big") not in (_MAGIC_LITTLE, _MAGIC_BIG):
        return False
    return _checksum(data[:24], (0, 0), _order(data)) == struct.unpack(">2I", data[24:32])


def _is_of_this_log(data: bytes, start: int) -> bool:
    """Return whether a frame belongs to this log, not to the previous one in the file.

    In a frame of the previous log, both salts differ from the header's.

    If only one salt differs, it was altered.
    """
    salts = data[start + 8 : start + 16]
    return salts[:4] == data[16:20] or salts[4:] == data[20:24]


def _sound_frames(data: bytes, size: int) -> Iterator[int]:
    """Yield the offsets of frames before the first altered one.

    Each checksum continues the previous one.
    """
    so_far: tuple[int, int] = struct.unpack(">2I", data[24:32])
    for start in range(_HEADER_BYTES, len(data), _FRAME_BYTES + size):
        frame = data[start : start + _FRAME_BYTES + size]
        if len(frame) < _FRAME_BYTES + size or frame[8:16] != data[16:24]:
            return
        so_far = _checksum(frame[_FRAME_BYTES:], _checksum(frame[:8], so_far, _order(data)), _order(data))
        if so_far != struct.unpack(">2I", frame[16:_FRAME_BYTES]):
            return
        yield start


def _order(data: bytes) -> str:
    return "<" if int.from_bytes(data[:4], "big") == _MAGIC_LITTLE else ">"


def _checksum(data: bytes, so_far: tuple[int, int], order: str) -> tuple[int, int]:
    """Continue a log's checksum as SQLite's format defines it."""
    one, other = so_far
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + other) % _WORDS
        other = (other + second + one) % _WORDS
    return one, other
