"""History of findings: new, seen in earlier nights, or known."""

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
    """Return the folder of an engine's known findings: the named one, or the default.

    A night, which writes there, creates a named folder.

    Raises:
        InputError: the named path is not a folder, or cannot be created.
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
    """Known findings, and nights that saw them, from a folder that need not exist.

    A night writes its sightings; a hunt only reads them.

    Raises:
        ScenarioError: a file in the folder is invalid.
    """

    def __init__(self, folder: Path, is_night: bool = True) -> None:
        self.lines: list[str] = []
        self.folder = folder
        self._is_night = is_night
        self._known = read_known(folder)
        self._seen = read_seen(folder)

    def update(self, bugs: Sequence[str], is_judged: bool = True) -> Recurrence:
        """Return findings as new, seen before, known or gone; store the sightings of a night.

        Without a judged trace (`is_judged`), no finding is gone.
        """
        assert not self.lines, "a night must be added only once"
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
