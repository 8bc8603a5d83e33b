"""Rows with a correct seal and invalid values are refused with one message.

Verifies: each column of each table, with values and JSON of wrong shapes, where rows are read and by each command.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cluster.cli import main as cli
from cluster.dispatch.job import Job, ShardJob
from cluster.storage.campaign import Campaign
from cluster.storage.errors import CampaignError
from cluster.storage.hunts import FindingState, HuntPlan
from cluster.storage.schema import TABLES, Cell, Row
from cluster.storage.store import Store
from scenarios.generation.shards import Shard
from tests.cluster.fake_judge import BlindJudge, FakeJudge, trace
from workers.record.verdict import Diverged
from workers.run.trials import Trial

JSON_COLUMNS = {"about", "judgement", "plan", "report", "trial", "state", "answer"}
WRONG_JSON = (
    *("null", "[]", "3", '"x"', "{}", "NaN", "", "{", "\x00", "[" * 5000, '{"a":' * 5000, "1" * 5000),
    json.dumps({"bug": 3, "stage": []}),
)
WRONG_VALUES: tuple[Any, ...] = (None, [], {"a": {}}, "x", -(10**30), 1e308)
WRONG_CELLS: tuple[Cell, ...] = (None, -1, 1 << 62, "", "../../x", "/etc/x", "a\x1bb", 3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a campaign with a row in each table."""
    folder = tmp_path_factory.mktemp("sound") / "campaign"
    with Store(folder) as store:
        for number, name in enumerate(("agree", "diverge", "crash", "stuck", "vacuous")):
            judgement = FakeJudge().judge(trace(name, number), True)
            job = Job.of(judgement.trace, sweep=True)
            store.begin_attempt(job.key, 1, 0)
            store.record(job, 1, judgement, name)
            store.note_late(job.key, 1, judgement)
        store.keep_settings(HuntPlan().model_dump_json())
        shard = Shard(profile="mixed", seed=0, number=0, traces=12)
        job_of_shard = ShardJob.of("hunt", shard, folder / "running")
        store.keep_shard(job_of_shard, 1, BlindJudge().hunt(shard, lambda trace: None))
        none = {"at": None}
        counts = {"number": 0, "traces_max": 1, "judged": 1, "reached": 1, "triggered": 1, "steps": 1, "seconds": 1.0}
        found_by = dict.fromkeys(("detected", "against_synchronous", "against_correct"), none)
        named = {"fault": "f", "baseline": False, "plane": "kv", "variable": "v"}
        trial = Trial.model_validate({**counts, **found_by, **named})
        store._db.insert("trials", ("t", "d", trial.model_dump_json()))
        found = FakeJudge().judge(trace("diverge"), True)
        assert isinstance(found.verdict, Diverged)
        values = {"bug": "b", "first": 0, "size": 1, "trace": found.trace, "verdict": found.verdict}
        state = FindingState.model_validate({**values, "stage": "closed", "judgement": found})
        store.keep_finding("b", state.model_dump_json())
    return folder


def copied(sound: Path, to: Path, table: str, column: str, value: Cell) -> Path:
    """Return a copy of a campaign in which one row has another value and a correct seal."""
    to.mkdir(exist_ok=True)
    (to / "campaign.sqlite").write_bytes((sound / "campaign.sqlite").read_bytes())
    shape = TABLES[table]
    with closing(sqlite3.connect(to / "campaign.sqlite", isolation_level=None)) as connection:
        which = "WHERE verdict = 'diverged'" if table == "results" else ""
        sealed = connection.execute(f"SELECT * FROM {table} {which}").fetchone()
        row: Row = tuple(value if name == column else cell for name, cell in zip(shape.columns, sealed, strict=False))
        connection.execute(f"DELETE FROM {table} WHERE seal = ?", (sealed[-1],))
        marks = ", ".join("?" * (len(row) + 1))
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", shape.sealed(row))
    return to


def wrong_leaves(text: str) -> Iterator[str]:
    """Yield variants of a JSON text, each with one value of another type, too large, or missing."""

    def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        if path:
            yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            yield from paths(item, (*path, key))

    for path in paths(json.loads(text)):
        for wrong in WRONG_VALUES:
            data = json.loads(text)
            at = data
            for key in path[:-1]:
                at = at[key]
            if wrong is None:
                del at[path[-1]]
            else:
                at[path[-1]] = wrong
            yield json.dumps(data)


COLUMNS = [(table, column) for table, shape in TABLES.items() if table != "meta" for column in shape.columns]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_wrong_value_is_read_or_refused_in_one_line(table: str, column: str, sound: Path, tmp_path: Path) -> None:
    messages = []
    for value in WRONG_JSON if column in JSON_COLUMNS else WRONG_CELLS:
        if value is None and column in TABLES[table].keys:
            continue
        folder = copied(sound, tmp_path / "copy", table, column, value)
        try:
            with Campaign(folder) as campaign:
                list(campaign.select(table))
        except CampaignError as error:
            messages.append(str(error))
    assert messages
    assert [each for each in messages if f" of {table} holds what this version cannot read: " not in each] == []
    assert max(map(len, messages)) < 2000


@pytest.mark.parametrize(("table", "column"), [(table, shape.columns[-1]) for table, shape in TABLES.items()][1:])
@pytest.mark.parametrize("command", ["report", "merge", "watch", "run", "triage"])
def test_a_command_says_it_in_one_line(
    command: str, table: str, column: str, sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copied(sound, tmp_path / "copy", table, column, "[" if column in JSON_COLUMNS else 3)
    scenario = tmp_path / "a.yaml"
    scenario.write_text("events:\n  - {tick: 0, do: submit, request: a, prompt: {tokens: 3}, max_tokens: 2}\n")
    words = {
        "report": ["report", str(folder), "--out", str(tmp_path / "out"), "--timelines", "0"],
        "merge": ["merge", str(folder), "--out", str(tmp_path / "out")],
        "watch": ["watch", str(folder), "--once"],
        "run": ["run", str(scenario), "--ray", "off", "--out", str(folder)],
        "triage": ["triage", "b", "--campaign", str(folder), "--known", str(tmp_path / "known")],
    }
    code = cli.run(words[command])
    said = capfd.readouterr().err
    assert "Traceback" not in said
    # If results.jsonl cannot be written, the scenario is judged, but the exit code is not 0.
    assert code in (0, 2) or (command, code) == ("run", 3)
    assert said.count("cannot read") <= 1
    assert code == 2 or command in ("watch", "run", "triage")
    assert not (tmp_path / "out").exists() or code == 0


# JSON of the right outer form that is no plan of a hunt, or no state of a finding.
WRONG_INSIDE = (
    ("hunts", "plan", json.dumps({"seed": "one"})),
    ("hunts", "plan", json.dumps({"run_on": {"device": "none"}})),
    ("findings", "state", json.dumps({"bug": "b"})),
    ("findings", "state", json.dumps({"bug": "b", "stage": "open", "trace": {}})),
)


@pytest.mark.parametrize(("table", "column", "value"), WRONG_INSIDE)
@pytest.mark.parametrize("command", ["report", "merge", "merge into", "hunt"])
def test_a_hunt_row_wrong_inside_is_refused_and_nothing_is_written(
    command: str,
    table: str,
    column: str,
    value: str,
    sound: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder, out = copied(sound, tmp_path / "copy", table, column, value), tmp_path / "out"
    if command == "merge into":
        with Store(out):
            pass
    before = contents(out)
    words = {
        "report": ["report", str(folder), "--out", str(out), "--timelines", "0"],
        "merge": ["merge", str(sound), str(folder), "--out", str(out)],
        "merge into": ["merge", str(sound), str(folder), "--out", str(out)],
        "hunt": ["hunt", "--ray", "off", "--traces", "1", "--out", str(folder)],
    }
    # A hunt that does not meet the finding again judges its trace, and cannot write results.jsonl.
    assert cli.run(words[command]) == (3 if command == "hunt" and table == "findings" else 2)
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert said.count("holds what this version cannot read") == 1
    assert f"of {table} holds what this version cannot read: {column}: " in said
    assert contents(out) == before


def contents(folder: Path) -> dict[str, object]:
    """Return the files of a folder, by name, and the rows of its campaign."""
    if not folder.exists():
        return {}
    with Campaign(folder) as campaign:
        rows = {table: list(campaign.select(table)) for table in TABLES}
    return {"rows": rows, "files": sorted(path.name for path in folder.rglob("*"))}


@pytest.mark.parametrize(("table", "column"), [("results", "judgement"), ("shards", "report"), ("findings", "state")])
def test_changed_json_values_are_displayed(
    table: str, column: str, sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shape = TABLES[table]
    with Campaign(sound) as campaign:
        rows = [row for row in campaign.select(table) if table != "results" or row[3] == "diverged"]
    text = str(rows[0][shape.columns.index(column)])
    codes = set()
    for number, wrong in enumerate(wrong_leaves(text)):
        # A part of them keeps the test quick.
        if number % 29:
            continue
        folder = copied(sound, tmp_path / "copy", table, column, wrong)
        code = cli.run(["report", str(folder), "--out", str(tmp_path / "out"), "--timelines", "0"])
        assert "Traceback" not in capfd.readouterr().err, wrong
        assert code in (0, 2), wrong
        codes.add(code)
    assert codes == {0, 2}
