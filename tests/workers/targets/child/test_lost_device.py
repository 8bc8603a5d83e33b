"""A process that lost its CUDA context reports it in one line and ends."""

import sys
from pathlib import Path

import pytest

from workers.targets.child.answers import Nothing
from workers.targets.child.inside.host import loses_device
from workers.targets.child.process import Keeper, Launch
from workers.targets.target import EngineFailed

LOST = """
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.main import serve

class AcceleratorError(RuntimeError):
    pass

class Engines:
    def open(self, spec, observed):
        raise AssertionError("no engine is opened")

    def forget(self):
        raise %s

serve(lambda arguments: (Host(Engines()), "1"))
"""
ROOT = Path(__file__).parents[4]


def keeper(raised: str, tmp_path: Path) -> Keeper:
    file = tmp_path / "lost.py"
    file.write_text(LOST % raised, encoding="utf-8")
    return Keeper("lost", lambda: Launch((sys.executable, str(file)), {"PYTHONPATH": str(ROOT)}, ROOT))


@pytest.mark.parametrize(
    ("raised", "message", "is_kept"),
    [
        (
            'AcceleratorError("CUDA error: device-side assert triggered\\nFor debugging ...")',
            "AcceleratorError: CUDA error: device-side assert triggered",
            False,
        ),
        ('ValueError("no\\nmore")', "ValueError: no\nmore", True),
    ],
)
def test_only_a_lost_device_ends_the_process(raised: str, message: str, is_kept: bool, tmp_path: Path) -> None:
    kept = keeper(raised, tmp_path)
    try:
        first = kept.process()
        with pytest.raises(EngineFailed) as failed:
            first.ask({"do": "forget"}, Nothing)
        assert str(failed.value) == message
        assert (kept.process() is first) == is_kept
    finally:
        kept.stop()


def test_lost_device_is_recognised_by_the_cause_of_an_exception() -> None:
    wrapped = RuntimeError("the step failed")
    wrapped.__cause__ = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert loses_device(wrapped)
    assert not loses_device(RuntimeError("the step failed"))
