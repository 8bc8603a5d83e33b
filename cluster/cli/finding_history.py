"""History of findings: which of a hunt or a night are new, were seen by earlier nights, or are known to people."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from cluster.campaigns.recurrence import Recurrence, recurrence, recurrence_lines
from cluster.cli.inputs import InputError
from cluster.reports.terminal import say
from cluster.storage.errors import StoreError
from cluster.storage.known import keep_seen, read_known, read_seen
from workers.targets.target import DEFAULT_CONFIG

KNOWN = Path("scenarios/known")


def known_folder(named: Path | None, engine: str, is_night: bool = False) -> Path:
    """Return the folder of known findings of an engine: the one named, else `KNOWN`, or of another engine its part.

    A night, which writes there, makes the one that is named.

    Raises:
        InputError: what was named is no folder, or cannot be made.
    """
    if named is None:
        return KNOWN if engine == DEFAULT_CONFIG.engine else KNOWN / engine
    if is_night:
        try:
            named.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--known is {named}, which cannot be created: {error.strerror}") from error
    if not named.is_dir():
        raise InputError(f"--known is {named}, which is not a folder; give a folder of known findings")
    return named


class FindingHistory:
    """Known findings and sightings of a folder, which need not exist; `lines` is the report of an update.

    A night writes what it has seen down, a hunt only looks it up.

    Raises:
        ScenarioError: a file in the folder is not what it must be.
    """

    def __init__(self, folder: Path, is_night: bool = True) -> None:
        self.lines: list[str] = []
        self.folder = folder
        self._is_night = is_night
        self._known = read_known(folder)
        self._seen = read_seen(folder)

    def update(self, bugs: Sequence[str], is_judged: bool = True) -> Recurrence:
        """Return the findings as new, seen before or known, and those not met as gone; keep those of a night.

        Without a judged trace (`is_judged`), no finding is gone.
        """
        assert not self.lines, "a night is added once"
        today = date.today()
        if self._is_night and self.folder.is_dir():
            try:
                self._seen = keep_seen(self.folder, bugs, today)
            except StoreError as error:
                say(str(error))
        result = recurrence(bugs, self._known, self._seen, today, is_judged)
        if self._is_night and not (is_judged or bugs):
            self.lines.append("findings over nights: not judged")
        elif (self._known or self.folder.is_dir()) and (self._is_night or bugs):
            self.lines += recurrence_lines(result, self._known, self._seen, self._is_night)
        return result
