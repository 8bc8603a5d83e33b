"""Schema of a campaign's database: tables, and the seal (digest) that reveals altered rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

SCHEMA_VERSION = 3
Cell: TypeAlias = str | int | None
Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A database table: name, columns, and number of key columns.

    The first `num_keys` columns are its primary key, and a `seal` column follows the last.
    """

    name: str
    columns: tuple[str, ...]
    num_keys: int = 1

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the columns of the primary key."""
        return self.columns[: self.num_keys]

    def sealed(self, row: Row) -> Row:
        """Return a row with its seal, a digest of its values."""
        assert len(row) == len(self.columns), f"{self.name} has {len(self.columns)} columns, given are {len(row)}"
        return (*row, seal_of(self.name, row))

    def is_sound(self, sealed: Row) -> bool:
        """Return whether the seal of a stored row equals the digest of its values."""
        return sealed[-1] == seal_of(self.name, sealed[:-1])

    def statement(self) -> str:
        """Return the SQL that creates the table."""
        columns = ", ".join((*self.columns, "seal"))
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self.keys)})) WITHOUT ROWID"


# `meta` marks the file as a campaign and has its version. `runs` has a row for each process that wrote here. `attempts`
# name their run, so that attempts of two merged campaigns stay different; their `outcome` is None while they run, and
# `reason` is the death of the worker of a lost one. `late` are answers after the one that was recorded.
TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table("meta", ("name", "value")),
        Table("runs", ("run", "about")),
        Table("results", ("job", "scenario", "attempt", "verdict", "digest", "artefact", "judgement")),
        Table("attempts", ("job", "attempt", "run", "slot", "outcome", "reason"), num_keys=3),
        Table("late", ("job", "digest", "attempt", "answer"), num_keys=2),
        Table("hunts", ("plan",)),
        Table("shards", ("job", "role", "number", "digest", "report")),
        Table("trials", ("job", "digest", "trial")),
        Table("findings", ("bug", "state")),
    )
}
META: Row = ("schema", str(SCHEMA_VERSION))


def seal_of(table: str, row: Iterable[object]) -> str:
    """Return the seal of a row: a digest of its values.

    It covers the name of the table, and the type, length and text of each value.
    """
    digest = blake2b(table.encode(), digest_size=8)
    for value in row:
        text = str(value).encode()
        digest.update(b"%s %d:%s" % (type(value).__name__.encode(), len(text), text))
    return digest.hexdigest()


def text_digest(text: str) -> str:
    """Return the digest of an answer's JSON; equal answers have equal digests."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
