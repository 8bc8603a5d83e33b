"""Every hostile act of an engine in its process becomes a verdict or a one-line message."""

import os
import sys
from pathlib import Path

import pytest

from tests.workers.targets.child.test_adder import TRACE, Adder
from tests.workers.targets.child.test_failures import Impatient
from tests.workers.targets.child.test_families import wait_for_ends
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Crashed, Diverged, Verdict
from workers.record.words import headline_text
from workers.run.check import check
from workers.targets.child.process import SECONDS, EngineProcess, Launch, Seconds
from workers.targets.target import DeviceError

ROOT = Path(__file__).resolve().parents[4]
# For each act in a step, part of the message; None if the verdict is `Agreed`.
IN_A_STEP = {
    "hangs": "gave no answer in 1 s",
    "prints for ever": "gave no answer in 1 s",
    "replaces modules": None,
    "moves": None,
    "ignores signals": None,
    "raises SystemExit": "SystemExit: 3",
    "raises KeyboardInterrupt": "KeyboardInterrupt: ",
    "exits": "died with exit code 0",
    "aborts": "died of SIGABRT",
    "kills its parent": "died of SIGKILL",
    "kills its group": "died of SIGKILL",
    "recurses": "RecursionError: maximum recursion depth exceeded",
    # Python 3.12 bounds recursion in C as well.
    "overflows the stack": "died of SIGSEGV" if sys.version_info < (3, 12) else "RecursionError: ",
    "fills memory": "MemoryError: ",
    "forks": "",
    "closes descriptors": "died with exit code",
    "closes its input": "died with exit code",
    "writes to the pipe": "",
    "raises from itself": "RuntimeError: no",
    "raises in an endless file": "RuntimeError: no",
    "raises without a text": "Unreadable: its text raises ValueError",
    "raises a long text": "RuntimeError: xxx",
    "raises half a character": "RuntimeError: \\ud800",
}
AT_THE_START = {
    "hangs": "gave no answer in 1 s: ",
    "prints for ever": "gave no answer in 1 s: ",
    "raises SystemExit": "SystemExit: 3",
    "exits": "died with exit code 0: it printed nothing",
    "recurses": "RecursionError: maximum recursion depth exceeded",
    "raises from itself": "RuntimeError: no",
    "raises a long text": "RuntimeError: xxx",
}
TIMEOUTS = ("hangs", "prints for ever")


class Watched(Impatient):
    """Impatient keeper that records the process ids that it has kept."""

    pids: tuple[int, ...] = ()

    def process(self) -> EngineProcess:
        kept = super().process()
        self.pids += (kept.pid,)
        return kept


class Hostile(Adder):
    """The kind of the hostile engine."""

    def __init__(self, when: str, what: str) -> None:
        command = (sys.executable, "-m", "tests.workers.targets.child.hostile_child", when, what)
        short = Seconds(start=1.0, answer=1.0)
        at = "greet" if when == "start" else "step"
        self.watched = Watched(self.name, Launch(command, {}, ROOT), at, short if what in TIMEOUTS else SECONDS)
        self.kept = self.watched


def judged(kind: Hostile) -> Verdict:
    try:
        return check(TRACE, ModelValueCache(), kind=kind)
    finally:
        kind.kept.stop()
        wait_for_ends(kind.watched.pids)


@pytest.mark.parametrize("what", IN_A_STEP)
def test_hostile_act_in_a_step_becomes_a_verdict(what: str) -> None:
    verdict, message = judged(Hostile("step", what)), IN_A_STEP[what]
    if message is None:
        assert isinstance(verdict, Agreed)
        return
    # A process that is killed only after its last answer fails the next run, with which the first one is compared.
    assert isinstance(verdict, Crashed) or (what.startswith("kills") and isinstance(verdict, Diverged))
    assert message in headline_text(verdict)


@pytest.mark.parametrize("what", AT_THE_START)
def test_hostile_act_at_the_start_becomes_one_line(what: str) -> None:
    with pytest.raises(DeviceError) as refused:
        judged(Hostile("start", what))
    assert str(refused.value).startswith("engine adder: ")
    assert AT_THE_START[what] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_process_is_killed_first_when_memory_runs_out() -> None:
    kind = Hostile("never", "exits")
    process = kind.kept.process()
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "1000"
    assert os.getpid() != process.pid
    kind.kept.stop()
