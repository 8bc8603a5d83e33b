"""Merge of campaigns: union of rows and files, independent of order and repetition.

A fixed order decides between two rows with one key. If their answers differ, the discarded one is stored as late: a
contradiction, as within one campaign. A job that was lost in one campaign and judged in another is judged.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from cluster.dispatch.inside import files_inside, inside, make_inside, remove_inside, write_inside
from cluster.storage.campaign import DATABASE, Campaign
from cluster.storage.database import Database
from cluster.storage.errors import CampaignError, StoreError, storing
from cluster.storage.lines import RESULTS, write_lines
from cluster.storage.lock import Claim, claim
from cluster.storage.schema import TABLES, Row
from scenarios.input_file import CAMPAIGN_BYTES_MAX, read_file

# Files of a campaign that are merged by name, including traces of lost jobs; all other files are generated from the
# rows.
_FILES = ("artefacts/*.yaml", "seldom/*.yaml", "snapshot/*/*.yaml", "running/[!.]*.yaml")
_STAGES = ("closed", "confirmed", "confirm", "shrink", "explain")


class Target(Protocol):
    """Destination of merged rows, by table and key."""

    def get(self, table: str, key: Row) -> Row | None:
        """Return the destination's row with a key, None without one."""

    def put(self, table: str, row: Row) -> None:
        """Write a row; it replaces one with the same key."""


def take(target: Target, table: str, row: Row) -> None:
    """Merge a row into a target; if both have the key, a fixed order selects the row to keep."""
    shape = TABLES[table]
    assert len(row) == len(shape.columns), f"{table} has {len(shape.columns)} columns"
    other = target.get(table, row[: shape.num_keys])
    if other is None:
        target.put(table, row)
        return
    winner, loser = sorted((row, other), key=_ORDERS.get(table, _plain))
    if winner != other:
        target.put(table, winner)
    late = _late(table, winner, loser)
    if late is not None:
        take(target, "late", late)


def _late(table: str, winner: Row, loser: Row) -> Row | None:
    """Return a row for table `late`: the answer that lost against another one.

    None if both answers are equal or the row is no answer.
    """
    match table, loser:
        case "results", (job, _, attempt, verdict, digest, _, judgement):
            return (job, digest, attempt, judgement) if verdict != "lost" and digest != winner[4] else None
        case "shards", (job, _, _, digest, report):
            return (job, digest, 0, report) if digest != winner[3] else None
    return None


def _plain(row: Row) -> tuple[Any, ...]:
    return tuple(("" if value is None else str(value)) for value in row)


def _result_order(row: Row) -> tuple[Any, ...]:
    _, scenario, attempt, verdict, digest, artefact, _ = row
    return verdict == "lost", digest, attempt, scenario, artefact or ""


def _attempt_order(row: Row) -> tuple[Any, ...]:
    *_, outcome, _ = row
    return outcome is None, outcome == "abandoned", _plain(row)


def _finding_order(row: Row) -> tuple[Any, ...]:
    stage = json.loads(str(row[1])).get("stage")
    return _STAGES.index(stage) if stage in _STAGES else len(_STAGES), row[1]


_ORDERS: dict[str, Callable[[Row], tuple[Any, ...]]] = {
    "results": _result_order,
    "attempts": _attempt_order,
    "late": lambda row: (row[2], row[3]),
    "shards": lambda row: (row[3],),
    "findings": _finding_order,
}


def merge(sources: Sequence[Path], place: Path | Claim) -> list[str]:
    """Merge campaigns into one, which may exist; return remarks on damage in them.

    Nested campaigns, such as the regressions of a night, are merged in the same way. `place` is the folder of the
    result, or a claim of it, which is released. A new result is removed if it cannot be written completely.

    Raises:
        CampaignError: one of them is not a campaign, or is being written; the result cannot be written.
        StoreError: one of them was altered while it was read.
    """
    claims: list[Claim] = []
    try:
        claims.append(place if isinstance(place, Claim) else claim(place))
        if not claims[0].is_new:
            # An existing result cannot be restored after an error: all rows are read before the first is written.
            for folder in (*sources, claims[0].folder):
                _check_rows(folder)
        remarks = _merge_whole(sources, claims[0], claims)
    except BaseException as error:
        for each in reversed(claims):
            each.give_up()
        if isinstance(error, StoreError) and not error.is_damage:
            raise CampaignError(f"{error}; give another --out") from error
        raise
    for each in claims:
        each.release()
    return remarks


def _merge_whole(sources: Sequence[Path], claimed: Claim, claims: list[Claim]) -> list[str]:
    """Merge campaigns, and the campaigns inside them, into locked folders.

    Append the claims of nested folders to `claims`.
    """
    out = claimed.folder
    with storing(out):
        for name in ("artefacts", "running"):
            make_inside(out, name)
    with closing(Database(out / DATABASE)) as database:
        remarks = database.remarks
        for source in sources:
            if source.resolve() != out.resolve():
                remarks += _merge_one(source, out, database)
        _forget_judged(out, database)
    with Campaign(out) as merged:
        write_lines(merged, out / RESULTS)
    for name in sorted({path.parent.name for source in sources for path in _inside(source)}):
        inner = [source / name for source in sources if source / name / DATABASE in _inside(source)]
        claims.append(claim(out / name))
        remarks += _merge_whole(inner, claims[-1], claims)
    return remarks


def _check_rows(folder: Path) -> None:
    """Read all rows of a campaign and its nested ones, so that a bad row raises.

    Raises:
        CampaignError: a row cannot be read by this version.
    """
    for database in (folder / DATABASE, *_inside(folder)):
        if database.is_file():
            with Campaign(database.parent) as campaign:
                for table in TABLES:
                    deque(campaign.select(table), maxlen=0)


def _inside(source: Path) -> list[Path]:
    """Return the databases of campaigns inside a campaign's folder; links are skipped."""
    return [path for path in source.glob(f"*/{DATABASE}") if path.is_file() and not path.parent.is_symlink()]


def _merge_one(source: Path, out: Path, database: Database) -> list[str]:
    with Campaign(source) as campaign:
        if campaign.is_being_written:
            raise CampaignError(f"{source}: is being written; merge it when that has ended")
        with database.transaction():
            for table in TABLES:
                if table != "meta":
                    for row in campaign.select(table):
                        take(database, table, row)
        with storing(out):
            for file in (path for pattern in _FILES for path in files_inside(source, pattern)):
                _merge_file(file, out, file.relative_to(source).as_posix())
        return campaign.remarks


def _merge_file(source: Path, out: Path, name: str) -> None:
    """Copy a file into a folder, unless a file of this name with lesser bytes is there.

    Of two files with one name, keep the one with the lesser bytes.
    """
    target, content = inside(out, name), read_file(source, CAMPAIGN_BYTES_MAX)
    if not target.exists() or read_file(target, CAMPAIGN_BYTES_MAX) > content:
        write_inside(out, name, content)


def _forget_judged(out: Path, database: Database) -> None:
    """Remove traces of jobs lost in one campaign but judged in another."""
    for path in (out / "running").glob("[!.]*.yaml"):
        judged = list(database.select("results", "job = ? AND verdict != 'lost'", (path.stem,)))
        if judged or list(database.select("shards", "job = ?", (path.stem,))):
            remove_inside(out, f"running/{path.name}")
