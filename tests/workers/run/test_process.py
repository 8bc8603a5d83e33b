"""Process of a worker: objects imported before the first trace are not collected."""

import subprocess
import sys

_SCRIPT = """
import gc
import workers.run.worker
from workers.run.process import prepare_process

before = gc.get_freeze_count()
prepare_process()
frozen = gc.get_freeze_count()
prepare_process()
held = [[] for _ in range(100_000)]
assert frozen > before + 10_000, (before, frozen)
assert gc.get_freeze_count() == frozen, "done once"
print(gc.get_threshold()[0])
"""


def test_prepare_process_freezes_objects_once() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 700


_CYCLE = """
from workers.run.process import prepare_process

class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self, print=print):
        print("freed")

held = Cycle()
prepare_process()
"""


def test_frozen_objects_are_freed_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", _CYCLE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "freed\n", "")
