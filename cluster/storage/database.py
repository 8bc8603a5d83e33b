"""Database of a campaign: SQLite rows with a digest (seal), verified and repaired.

Rows with a wrong seal and unreadable rows are dropped: their jobs have no result and run again. The damaged file is
kept beside the repaired one.
"""

import os
import shutil
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from cluster.dispatch.inside import inside
from cluster.storage.errors import CampaignError, StoreError, is_damage, store_error, storing
from cluster.storage.rows import checked_row
from cluster.storage.schema import META, SCHEMA_VERSION, TABLES, Cell, Row, Table
from cluster.storage.wal import damage_of_log, log_of
from scenarios.input_file import check_regular, open_regular_file

PAGE_BYTES = 4096
BUSY_SECONDS = 10.0
KEY_RANGES = 16**3
# The first bytes of every database of ours: the name of the format, pages of 4,096 bytes, a write-ahead log.
_HEADER = b"SQLite format 3\0\x10\x00\x02\x02\x00\x40\x20\x20"
_HEADER_WITHOUT_LOG = _HEADER.replace(b"\x02\x02", b"\x01\x01")
_MAGIC_BYTES, _MAGIC_ALIKE_MIN = 16, 10


class Database:
    """Campaign database, open for writing; `remarks` describe damage found at opening.

    Raises:
        CampaignError: the file is not a campaign of a known version.
        StoreError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with storing(path):
            for file in (path, log_of(path), path.with_name(f"{path.name}-shm")):
                inside(file.parent, file.name)
            damage = damage_of_log(path)
            self.remarks = ([] if damage is None else [damage]) + _ensure_sound(path)
            self._connection = _connect(path)

    def close(self) -> None:
        """Close the file, which merges its write-ahead log."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes of a `with` block atomic.

        A nested transaction is part of the outer one.
        """
        is_inside = self._connection.in_transaction
        if is_inside:
            yield
            return
        with storing(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def insert(self, table: str, row: Row, instead: str = "IGNORE") -> bool:
        """Write a row; return whether it was written.

        If its key exists, the old row stays (`IGNORE`) or is replaced (`REPLACE`).
        """
        assert instead in ("ABORT", "IGNORE", "REPLACE"), instead
        sealed = TABLES[table].sealed(row)
        marks = ", ".join("?" * len(sealed))
        with storing(self._path):
            cursor = self._connection.execute(f"INSERT OR {instead} INTO {table} VALUES ({marks})", sealed)
        return cursor.rowcount > 0

    def delete(self, table: str, where: str) -> None:
        """Delete the rows that match a condition."""
        assert where, f"some rows of {table}, never all"
        with storing(self._path):
            self._connection.execute(f"DELETE FROM {table} WHERE {where}")

    def select(self, table: str, where: str = "1", values: Sequence[Cell] = ()) -> Iterator[Row]:
        """Yield a table's rows without seals, by key, each verified when read.

        Raises:
            StoreError: a row was altered since the database was opened.
        """
        shape = TABLES[table]
        query = f"SELECT * FROM {table} WHERE {where} ORDER BY {', '.join(shape.keys)}"
        with storing(self._path):
            for sealed in self._connection.execute(query, values):
                if not shape.is_sound(sealed):
                    what = f"{self._path}: a row of {table} was altered while it was open"
                    raise StoreError(f"{what}; the next command that opens it drops it", is_damage=True)
                yield checked_row(self._path, shape, sealed[:-1])

    def get(self, table: str, key: Row) -> Row | None:
        """Return the row of a table with a primary key, None without one."""
        where = " AND ".join(f"{column} = ?" for column in TABLES[table].keys)
        return next(self.select(table, where, key), None)

    def put(self, table: str, row: Row) -> None:
        """Write a row, replacing one with the same key."""
        written = self.insert(table, row, "REPLACE")
        assert written, f"a row of {table} was not written"

    def query(self, text: str, values: Sequence[Cell] = ()) -> list[Row]:
        """Return the result of a query on key columns and counts."""
        with storing(self._path):
            return self._connection.execute(text, values).fetchall()


def _connect(path: Path, is_new: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    try:
        # Bytes that are not valid UTF-8 come from an altered row, which is handled later.
        connection.text_factory = _decode
        if is_new:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        else:
            # A killed process loses nothing; a power cut loses the last results at most, which run again.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a database read-only.

    Without a log it is opened as immutable, so that SQLite creates no file.
    """
    check_regular(path)
    is_written = log_of(path).exists()
    uri = f"{path.resolve().as_uri()}?mode=ro"
    # SQLite cannot open the log of a killed process in a folder without write permission: then as immutable, too.
    ways = (uri, f"{uri}&immutable=1") if is_written else (f"{uri}&immutable=1",)
    for way in ways:
        connection = sqlite3.connect(way, uri=True, timeout=BUSY_SECONDS)
        connection.text_factory = _decode
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            connection.close()
            if way == ways[-1] or is_damage(error):
                raise
        else:
            return connection
    raise AssertionError("one of the ways was taken")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _ensure_sound(path: Path) -> list[str]:
    """Create or repair the database at a path; return remarks about damage."""
    if not path.exists() or not path.stat().st_size or _has_no_tables(path):
        wrong = _what_is_gone(path)
        _create(path)
        return [] if wrong is None else [f"{path}: {wrong}: whatever it held is gone, and is run again"]
    wrong = _inspect(path)
    if wrong is None:
        return []
    kept, aside = _rebuild(path)
    return [f"{path}: was damaged ({wrong}); {kept:,} rows were sound, the others run again; it stays as {aside.name}"]


def _what_is_gone(path: Path) -> str | None:
    """Return a text if a database that had rows is missing or empty now, else None."""
    if path.exists():
        return None if path.stat().st_size else "was empty (0 bytes)"
    return f"is missing beside its log ({log_of(path).name})" if log_of(path).exists() else None


def _inspect(path: Path) -> str | None:
    """Describe the damage of a database; None if it is sound.

    Raises:
        CampaignError: it is not a campaign of this version.
    """
    with open_regular_file(path) as descriptor:
        header = os.read(descriptor, len(_HEADER))
    if sum(one == other for one, other in zip(header[:_MAGIC_BYTES], _HEADER, strict=False)) < _MAGIC_ALIKE_MIN:
        raise CampaignError(f"{path}: is not a campaign database; give another --out")
    if header not in (_HEADER, _HEADER_WITHOUT_LOG):
        return "its header was altered"
    try:
        with closing(_connect(path)) as connection:
            check_version(connection, path)
            return _wrong(connection)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)


def _has_no_tables(path: Path) -> bool:
    """Whether a process died between creating a database and creating its tables."""
    if path.stat().st_size > PAGE_BYTES:
        return False
    try:
        with closing(sqlite3.connect(path)) as connection:
            (count,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return False
    return not count and not version


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if a readable database is not a campaign of this version; a damaged one passes.

    Raises:
        CampaignError: it is of another version, or no campaign.
    """
    other = _computed_column(connection)
    if other is not None:
        raise CampaignError(f"{path}: is not a campaign database: {other} is computed; give another --out")
    tables = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "meta" in tables:
        rows = connection.execute("SELECT * FROM meta WHERE name = 'schema'").fetchall()
        if rows and TABLES["meta"].is_sound(rows[0]) and TABLES["meta"].sealed(META) not in rows:
            what = f"is a campaign of version {rows[0][1]}; this is for version {SCHEMA_VERSION}"
            raise CampaignError(f"{path}: {what}; give another --out")
    # A damaged list of tables may lack one of them.
    elif len(tables & TABLES.keys()) <= len(TABLES) // 2:
        raise CampaignError(f"{path}: is not a campaign database: its tables are others; give another --out")


def _computed_column(connection: sqlite3.Connection) -> str | None:
    """Describe a view, trigger, virtual table or generated column of a database, or return None.

    A campaign has none of them. In a foreign file they may take forever to read.
    """
    how = "type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%' OR sql LIKE '% AS (%'"
    row = connection.execute(f"SELECT type FROM sqlite_master WHERE {how}").fetchone()
    return None if row is None else f"a {row[0]} of it"


def _wrong(connection: sqlite3.Connection) -> str | None:
    """Describe the damage of a database of this version; None if undamaged."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        return str(found).partition("\n")[0]
    for table in TABLES.values():
        bad = sum(not table.is_sound(row) for row in connection.execute(f"SELECT * FROM {table.name}"))
        if bad:
            return f"{bad:,} altered {'row' if bad == 1 else 'rows'} in {table.name}"
    if not connection.execute("SELECT 1 FROM meta").fetchall():
        return "it does not say what it is"
    return None


def _create(path: Path) -> None:
    """Create an empty campaign database in one transaction."""
    with closing(_connect(path, is_new=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for table in TABLES.values():
            connection.execute(table.statement())
        connection.execute("INSERT INTO meta VALUES (?, ?, ?)", TABLES["meta"].sealed(META))
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")


def _rebuild(path: Path) -> tuple[int, Path]:
    """Copy a database's readable rows to a new one; keep the damaged file.

    Return the number of copied rows, and the path of the damaged file. A process that is killed or fails during the
    copy leaves the database unchanged.
    """
    source, target = (path.with_name(f".{path.name}.{name}") for name in ("read", "new"))
    try:
        for file in (target, source, log_of(source)):
            file.unlink(missing_ok=True)
        _copy_to_read(path, source)
        _create(target)
        num_kept = _take_over(source, target)
        aside = _put_aside(path)
        os.replace(target, path)
    finally:
        for file in (target, source):
            for each in path.parent.glob(f"{file.name}*"):
                each.unlink(missing_ok=True)
    return num_kept, aside


def _copy_to_read(path: Path, source: Path) -> None:
    """Copy a database with its log, and restore its header."""
    shutil.copyfile(path, source)
    if log_of(path).exists():
        shutil.copyfile(log_of(path), log_of(source))
    with source.open("r+b") as file:
        file.write(_HEADER)


def _take_over(source: Path, target: Path) -> int:
    count = 0
    with closing(sqlite3.connect(source)) as connection, closing(_connect(target, is_new=True)) as new:
        connection.text_factory = _decode
        # With this setting, SQLite reads a file that is cut off or has a damaged list of tables as far as possible.
        connection.execute("PRAGMA writable_schema=ON")
        other = _computed_column(connection)
        if other is not None:
            raise CampaignError(f"{target}: is not a campaign database: {other} is computed; give another --out")
        new.execute("BEGIN IMMEDIATE")
        for table in TABLES.values():
            insert = f"INSERT OR IGNORE INTO {table.name} VALUES ({', '.join('?' * (len(table.columns) + 1))})"
            for row in _sound_rows(connection, table):
                taken = new.execute(insert, table.sealed(row)).rowcount > 0
                count += taken and table.name != "meta"
        new.execute("COMMIT")
    return count


def _sound_rows(connection: sqlite3.Connection, table: Table) -> Iterator[Row]:
    """Yield the readable rows with a correct seal; a row may appear twice."""
    query = f"SELECT {', '.join((*table.columns, 'seal'))} FROM {table.name}"
    if (yield from _sound_part(connection, table, query)):
        return
    # Keys are digests: rows after an unreadable page are found by ranges of keys.
    for number in range(KEY_RANGES):
        first, last = f"{number:03x}", f"{number:03x}g"
        within = f"{query} WHERE {table.columns[0]} BETWEEN '{first}' AND '{last}'"
        yield from _sound_part(connection, table, within)


def _sound_part(connection: sqlite3.Connection, table: Table, query: str) -> Generator[Row, None, bool]:
    """Yield the sound rows of a query, and return whether it was read to its end."""
    try:
        for row in connection.execute(query):
            if table.is_sound(row):
                yield row[:-1]
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return False
    return True


def _put_aside(path: Path) -> Path:
    """Link or copy a database to the first free name, and move its log there.

    Return the new path.
    """
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    try:
        os.link(path, aside)
    except OSError:
        shutil.copyfile(path, aside)
    # SQLite would apply a remaining log to the new database.
    if log_of(path).exists():
        os.replace(log_of(path), log_of(aside))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    assert aside.exists(), f"{path} is about to be replaced, and nothing is left of it"
    return aside
