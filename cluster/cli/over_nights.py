"""Findings of a night held against those of the nights before, and against what people know of."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from cluster.campaigns.recurrence import Recurrence, recurrence, recurrence_lines
from cluster.cli.campaign import say
from cluster.storage.errors import StoreError
from cluster.storage.known import keep_seen, read_known, read_seen


class OverNights:
    """The folder of known findings, which need not be there; `lines` is what is to be told of the night.

    Raises:
        ScenarioError: a file in the folder is not what it must be.
    """

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self._folder = folder
        self._known = read_known(folder)
        self._seen = read_seen(folder)

    def tell(self, bugs: Sequence[str]) -> Recurrence:
        """Note that some findings were seen tonight, and tell which are new, known, or no longer shown."""
        assert not self.lines, "a night is told once"
        today = date.today()
        if self._folder.is_dir():
            try:
                self._seen = keep_seen(self._folder, bugs, today)
            except StoreError as error:
                say(str(error))
        result = recurrence(bugs, self._known, self._seen, today)
        if self._folder.is_dir():
            self.lines += recurrence_lines(result, self._known, self._seen)
        return result
