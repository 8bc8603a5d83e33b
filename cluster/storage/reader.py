"""Reader of a campaign directory for reports: read-only, and beside a process that writes it.

A stored value is taken only if its digest is right; what was altered is counted, never shown.
"""

import sqlite3
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from cluster.storage.store import CampaignError

DATABASE = "campaign.sqlite"


class ResultRow(NamedTuple):
    """One recorded result as it is stored: `judgement` is JSON, `artefact` a path inside the campaign directory."""

    scenario: str
    verdict: str
    artefact: str | None
    judgement: str


class ShardRow(NamedTuple):
    """One report of a shard as it is stored, in JSON."""

    role: str
    number: int
    report: str


class CampaignReader:
    """The contents of one campaign directory; a context manager. `num_damaged` counts rows that were altered.

    Raises:
        CampaignError: the folder holds no campaign, or one that cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_damaged = 0
        path = folder / DATABASE
        if not path.is_file():
            raise CampaignError(f"{folder}: is not a campaign: it has no {DATABASE}; name a folder that --out made")
        self._db = _open(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._db.close()

    def results(self) -> Iterator[ResultRow]:
        """Yield the results by scenario."""
        query = "SELECT digest, scenario, verdict, artefact, judgement FROM results ORDER BY scenario, job"
        for digest, *row in self._rows("results", query):
            result = ResultRow(*row)
            if self._is_sound(result.judgement, digest):
                yield result

    def shards(self) -> Iterator[ShardRow]:
        """Yield the reports of shards, by role and number."""
        query = "SELECT digest, role, number, report FROM shards ORDER BY role, number, job"
        for digest, *row in self._rows("shards", query):
            shard = ShardRow(*row)
            if self._is_sound(shard.report, digest):
                yield shard

    def trials(self) -> Iterator[str]:
        """Yield the trials of faults, in JSON."""
        yield from (trial for (trial,) in self._rows("trials", "SELECT trial FROM trials ORDER BY job"))

    def findings(self) -> Iterator[str]:
        """Yield the states of the findings of a hunt, in JSON."""
        yield from (state for (state,) in self._rows("findings", "SELECT state FROM findings ORDER BY bug"))

    def settings(self) -> str | None:
        """Return what a hunt looks at, in JSON; None for a campaign that is no hunt."""
        return next((plan for (plan,) in self._rows("hunts", "SELECT plan FROM hunts")), None)

    def _rows(self, table: str, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._db.execute(query)
        except sqlite3.DatabaseError as error:
            raise CampaignError(f"{self.folder / DATABASE}: table {table} cannot be read: {error}") from error

    def _is_sound(self, text: str, digest: str) -> bool:
        sound = blake2b(text.encode(), digest_size=16).hexdigest() == digest
        self.num_damaged += not sound
        return sound


def _open(path: Path) -> sqlite3.Connection:
    """Open a database for reading; one that nobody writes is opened as a plain file, so that none is made beside it."""
    written = path.with_name(f"{path.name}-wal").exists()
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    for how in ("", "&immutable=1") if written else ("&immutable=1",):
        database = sqlite3.connect(address + how, uri=True)
        try:
            database.execute("SELECT name FROM sqlite_schema LIMIT 1").fetchall()
        except sqlite3.DatabaseError as error:
            database.close()
            problem = error
        else:
            return database
    raise CampaignError(f"{path}: is not a campaign database: {problem}") from problem
