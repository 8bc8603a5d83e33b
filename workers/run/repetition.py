"""Repetition: a run that is compared with one that agreed under another schedule, instead of being judged.

Verifies: that it shows the same, entry by entry and capture by capture, and neither a race nor a broken contract.
"""

from collections.abc import Callable

from workers.record.log import Entry
from workers.record.observation import Observation
from workers.record.verdict import Stats
from workers.run.agreed_run import AgreedRun
from workers.run.engine_run import Run
from workers.run.panel import Panel
from workers.run.references import References
from workers.targets.target import DeviceError


class Repetition:
    """A run that is compared with an agreed one."""

    def __init__(self, agreed: AgreedRun) -> None:
        self._agreed = agreed
        self._num_logged = self._num_captured = 0

    def goes_on(self, log: list[Entry | Observation], captures: list[Observation]) -> bool:
        """Tell whether what is shown next is the same."""
        agreed, logged, captured = self._agreed, self._num_logged, self._num_captured
        self._num_logged += len(log)
        self._num_captured += len(captures)
        return (
            agreed.log[logged : self._num_logged] == log and agreed.captures[captured : self._num_captured] == captures
        )

    def ends(self, left: Observation, digest: str) -> bool:
        """Tell whether all was shown, and the end is the same."""
        agreed = self._agreed
        shown = self._num_logged, self._num_captured
        return shown == (len(agreed.log), len(agreed.captures)) and (left, digest) == (agreed.left, agreed.digest)


def kept_by(run: Run, compared: References | None) -> Callable[[Observation, str], None] | None:
    """Keep what a run shows, for runs of its trace under other schedules; return what is called when it has agreed."""
    if compared is None or run.panel.checker is None:
        return None
    kept = AgreedRun(run.trace, run.panel.checker)
    run.panel.kept = kept.keep

    def agreed(left: Observation, digest: str) -> None:
        kept.ended(left, digest)
        compared.agreed = kept

    return agreed


def repeated(start: Callable[[], Run], agreed: AgreedRun) -> Stats | None:
    """Run a trace of which a run agreed under another schedule; None as soon as it shows anything that one did not.

    Raises:
        DeviceError: the trace cannot run on that device.
    """
    run: Run | None = None
    try:
        run = start()
        return _stats_if_same(run, agreed)
    except DeviceError:
        raise
    except Exception:
        return None
    finally:
        if run is not None:
            run.target.close()


def _stats_if_same(run: Run, agreed: AgreedRun) -> Stats | None:
    feed, target, repetition = run.feed, run.target, Repetition(agreed)
    while not feed.drained():
        if feed.tick > agreed.steps:
            return None
        feed.step()
        if not repetition.goes_on(target.take_log(), target.take_captures()):
            return None
    target.drain()
    left, digest = target.left_over(), target.digest()
    is_same = repetition.goes_on(target.take_log(), target.take_captures()) and repetition.ends(left, digest)
    others = tuple(judge for judge in run.panel.judges if judge is not run.panel.checker)
    if not is_same or Panel(others).at_end(target, feed.tick) is not None:
        return None
    # What was compared is what the checker of the other run compared.
    run.panel = Panel((agreed.checker, *others))
    return run.stats()
