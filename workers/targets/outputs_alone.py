"""Base of targets that show outputs alone: no decisions, no captures, nothing of what the host holds."""

from workers.record.log import Entry
from workers.record.observation import Observation
from workers.record.verdict import Difference


class OutputsAlone:
    """What a target answers that shows its outputs and nothing else; it has drained when it says so."""

    __slots__ = ()

    def take_log(self) -> list[Entry | Observation]:
        """Return nothing: its decisions are its own."""
        return []

    def take_captures(self) -> list[Observation]:
        """Return nothing: its device's memory is its own."""
        return []

    def digest(self) -> str:
        """Return an empty hash: nothing is captured."""
        return ""

    def drain(self) -> None:
        """Do nothing: an engine that has drained has nothing enqueued."""

    def left_over(self) -> Observation:
        """Refuse: what a host holds is asked of engines that log their decisions."""
        raise AssertionError("it shows outputs alone")

    def last_writers(self, step: int, variable: str) -> tuple[str, ...]:
        """Return nobody: its writes are its own."""
        return ()

    def differences(self) -> tuple[Difference, ...]:
        """Return nothing: it looks for nothing itself."""
        return ()
