"""The code that all engines in child processes share names none of them."""

from pathlib import Path

from workers.targets.registry import known_engines
from workers.targets.target import SPECSTORM

CHILD = Path(__file__).resolve().parents[4] / "workers" / "targets" / "child"


def test_shared_code_names_no_engine() -> None:
    engines = {engine.partition("-")[0] for engine in known_engines() if engine != SPECSTORM} | {"sglang"}
    assert "vllm" in engines
    files = sorted(CHILD.rglob("*.py"))
    assert CHILD / "inside" / "host.py" in files
    named = {f"{path.name}: {name}" for path in files for name in engines if name in path.read_text().lower()}
    assert sorted(named) == []
