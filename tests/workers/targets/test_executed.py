"""Record of executed functions: writing, reading, queries and refusals."""

from pathlib import Path

import pytest

from cluster.cli.inputs import SCENARIOS
from workers.targets.executed import Executed, RecordError
from workers.targets.registry import known_engines, target_kind

BLOCKS = {
    "a": ["ours/core.py:run", "ours/core.py:run:1", "ours/core.py:<module>", "ours/x/y.py:<module>"],
    "b": ["ours/core.py:run", "ours/core.py:run:3", "ours/core.py:<module>", "ours/core.py:Class.call"],
    "c": ["ours/core.py:<module>"],
}
RECORD = Executed.of("1.2.3", BLOCKS)
RECORDED = [name for name in known_engines() if target_kind(name).executed is not None]


def test_record_returns_the_scenarios_of_a_block() -> None:
    assert RECORD.scenarios == ("a", "b", "c")
    found = [sorted(RECORD.of_block("ours/core.py:run", number)) for number in range(5)]
    assert found == [["a", "b"], ["a"], [], ["b"], []]
    assert RECORD.of_block("ours/core.py:never") == frozenset()
    assert RECORD.of_functions("ours/core.py:Class.") == {"b"}
    assert RECORD.of_file("ours/core.py") == {"a", "b"}
    assert RECORD.of_file("ours/x/y.py") == {"a"}


def test_record_round_trips(tmp_path: Path) -> None:
    file = tmp_path / "executed.json"
    file.write_text(RECORD.text())
    read = Executed.read(file)
    assert (read, read.text()) == (RECORD, RECORD.text())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"release": "1", "scenarios": [], "sets": ["g"], "folders": {}}'])
def test_invalid_record_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "executed.json").write_text(text)
    with pytest.raises(RecordError, match=r"executed\.json: no record of executed functions: "):
        Executed.read(tmp_path / "executed.json")


@pytest.mark.parametrize("engine", RECORDED)
def test_record_of_an_engine_has_its_scenarios_and_is_small(engine: str) -> None:
    kind = target_kind(engine)
    assert kind.executed is not None
    record = Executed.read(kind.executed)
    there = {path.stem for name in (kind.package, engine) for path in (SCENARIOS / name).glob("*.yaml")}
    assert set(record.scenarios) <= there
    assert set(kind.smoke) <= set(record.scenarios)
    assert len(record.functions) > 1000
    assert kind.executed.stat().st_size < 250_000
