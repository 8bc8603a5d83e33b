"""Program `specstorm` with an engine that hangs in one phase of a command, despite exceptions.

`stuck_engine.py PHASE ARGUMENTS...`; it says `stuck` on stderr when it hangs.
"""

import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from cluster.cli.main import main
from scenarios.events import Hook
from scenarios.trace import Trace
from tests.workers.targets.black_box import BlackBox, BlackBoxKind
from workers.run.check import _confirm
from workers.run.shard import first_matching_candidate
from workers.targets import registry
from workers.targets.child.process import Keeper, Launch
from workers.targets.target import Confirmation, RunConfig, Watch

# Program of an engine that never starts, does not end on SIGTERM, and has a child.
_NEVER_STARTS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
while True:
    time.sleep(60)
"""
STUCK = b"stuck\n"
PHASE = sys.argv[1] if __name__ == "__main__" else ""


def hang() -> None:
    """Never return, even if signal handlers raise."""
    if PHASE == "native code":
        try:
            os.write(2, STUCK)
            Event().wait()
        except KeyboardInterrupt:
            # It keeps the interpreter lock.
            ctypes.PyDLL(None).sleep(600)
    while True:
        # An exception may be raised between two calls as well.
        with suppress(BaseException):
            os.write(2, STUCK)
            while True:
                with suppress(BaseException):
                    Event().wait()


class StuckBox(BlackBox):
    """Engine that hangs in a step."""

    def step(self, happen: Callable[[Hook], None]) -> None:
        hang()


@dataclass(frozen=True)
class StuckKind(BlackBoxKind):
    """Kind of an engine with a bug at depth 2; its findings have to be confirmed."""

    def renew(self, config: RunConfig) -> bool:
        return True

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        if config.kernels == "interpreted":
            return None
        return Confirmation(config.model_copy(update={"kernels": "interpreted"}), "a definition is wrong", 10_000)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> BlackBox:
        callers = {frame.name for frame in traceback.extract_stack()}
        if PHASE in ("confirmation", "native code") and _confirm.__name__ in callers:
            hang()
        if PHASE == "shrinking" and first_matching_candidate.__name__ in callers:
            hang()
        if PHASE == "start of an engine":
            command = (sys.executable, "-S", "-E", "-c", _NEVER_STARTS)
            os.write(2, STUCK)
            Keeper("black_box", lambda: Launch(command, {}, Path.cwd())).process()
        box = super().open(trace, config, watch)
        box.mistake = "ahead"
        if PHASE == "interpreted kernels" and config.kernels == "interpreted":
            return StuckBox(trace, box.mistake)
        return box


if __name__ == "__main__":
    registry._KINDS["black_box"] = ("tests.cluster.cli.stuck_engine", "StuckKind")
    sys.modules["tests.cluster.cli.stuck_engine"] = sys.modules["__main__"]
    sys.argv[1:] = sys.argv[2:]
    main()
