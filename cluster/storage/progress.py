"""Progress of a campaign in a file of its folder, for other processes."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from cluster.dispatch.inside import writing_inside
from cluster.storage.pace import Pace, RemainingTime, Seconds
from scenarios.input_file import read_file
from scenarios.spec import Value
from workers.record.names import Count

FILE = "progress.json"
EVERY_SECONDS = 1.0
BYTES_MAX = 1 << 20


class Snapshot(Value):
    """Progress of one run of a campaign: `done` units of `total`.

    `kept` of the done units are from earlier runs.

    Times are seconds since 1970; `now` ignores clock changes since the start of the run. `run` is the name of the
    recorded run. `expected` counts findings of planted faults, which are not in `findings`. `left` is None without a
    reliable estimate.
    """

    run: str
    begun: Seconds
    now: Seconds
    done: Count
    kept: Count
    total: Count | None
    findings: Count
    shrinking: Count
    expected: Count | None = None
    left: RemainingTime | None = None

    @property
    def rate(self) -> float:
        """Return the units done per second, 0 if it is unknown."""
        seconds = self.now - self.begun
        return (self.done - self.kept) / seconds if seconds > 0 else 0.0


class ProgressFile:
    """The progress file of one run, written at most once a second; write errors are ignored."""

    def __init__(
        self,
        folder: Path,
        run: str,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._run = run
        self._clock = clock
        self._time_of_day = time_of_day
        # Time of day minus the clock, as of the first note.
        self._behind: float | None = None
        self._begun = self._last = 0.0
        self._kept = 0
        self._pace = Pace()

    def note(self, done: int, total: int | None, findings: int, shrinking: int, expected: int | None = None) -> None:
        """Write the progress of the run, at most once a second unless it is complete."""
        assert done >= 0, f"{done} units are done"
        now = self._clock()
        if self._behind is None:
            self._behind, self._begun, self._kept = self._time_of_day() - now, now, done
        elif now - self._last < EVERY_SECONDS and done != total:
            return
        self._last = now
        self._pace.note(now, done)
        snapshot = Snapshot(
            run=self._run,
            begun=self._behind + self._begun,
            now=self._behind + now,
            done=done,
            kept=self._kept,
            total=total,
            findings=findings,
            shrinking=shrinking,
            expected=expected,
            left=self._pace.left(total),
        )
        # Disk errors are reported by files that must be written.
        with suppress(OSError), writing_inside(self._folder, FILE, is_durable=False) as file:
            file.write(snapshot.model_dump_json().encode())


def read_progress(folder: Path) -> Snapshot | None:
    """Return the progress of a campaign's newest run, or of a campaign inside it."""
    found = []
    for path in (folder / FILE, *folder.glob(f"*/{FILE}")):
        with suppress(OSError, ValidationError):
            found.append(Snapshot.model_validate_json(read_file(path, BYTES_MAX)))
    return max(found, key=lambda each: each.now, default=None)
