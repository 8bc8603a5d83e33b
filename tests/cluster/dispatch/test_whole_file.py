"""A file is replaced completely or not at all, even with other writers, errors or kills."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.dispatch.inside import writing_inside
from cluster.dispatch.origin import ROOT

# Writes the first half of a file, says so, and waits.
HALF = """
import sys
from pathlib import Path
from cluster.dispatch.inside import writing_inside
with writing_inside(Path(sys.argv[1]).parent, Path(sys.argv[1]).name) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


def half_writer(path: Path) -> "subprocess.Popen[str]":
    """Start a process that stops in the middle of writing a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", HALF, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def test_two_writers_of_one_path_leave_the_whole_file_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with writing_inside(path.parent, path.name) as first, writing_inside(path.parent, path.name) as second:
        for file, letter in ((first, b"a"), (second, b"b"), (first, b"a"), (second, b"b")):
            file.write(letter)
    assert path.read_bytes() == b"aa"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_block_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError, match="bytes-like"), writing_inside(path.parent, path.name, is_durable) as file:
        file.write("no bytes")  # type: ignore[call-overload]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_of_a_killed_writer_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    killed, living = half_writer(path), half_writer(path)
    assert len(list(tmp_path.iterdir())) == 2
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    with writing_inside(path.parent, path.name) as file:
        file.write(b"whole")
    assert len(list(tmp_path.iterdir())) == 2
    living.communicate()
    assert living.returncode == 0
    assert path.read_bytes() == b"half"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_as_long_as_the_file_system_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    with writing_inside(path.parent, path.name) as file:
        file.write(b"whole")
    assert os.listdir(tmp_path) == [path.name]
