"""Names of bundled scenarios mean the same in every command, from any folder."""

from pathlib import Path

import pytest

from cluster.cli import main as cli

FOUND = "regressions/vllm-38556-accepted-counts.yaml"
NOWHERE = "no Ray job server answers at http://127.0.0.1:9"
COMMANDS = [
    (["run", FOUND, "--ray", "off"], 1, ""),
    (["replay", FOUND], 1, ""),
    (["validate", FOUND], 0, ""),
    (["shrink", FOUND, "--limit", "1"], 1, ""),
    (["hunt", "--corpus", "seeds", "--traces", "1", "--ray", "off"], 0, ""),
    (["bisect", FOUND, "--engine", "specstorm"], 2, "--engine is specstorm; it has no releases"),
    (["submit", "--address", "http://127.0.0.1:9", "nightly"], 2, NOWHERE),
    (["submit", "--address", "http://127.0.0.1:9", "run", "smoke"], 2, NOWHERE),
    (["submit", "--address", "http://127.0.0.1:9", "run", "smoke/none.yaml"], 2, "smoke/none.yaml: no such file"),
]


@pytest.mark.parametrize(("command", "code", "words"), COMMANDS, ids=lambda value: str(value)[:40])
def test_a_bundled_name_is_found_from_any_folder(
    command: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(command) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert "no such file" in words or "no such file" not in captured.err


def test_nothing_is_written_beside_a_bundled_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(Path(cli.__file__).parents[2].glob("scenarios/regressions/*"))
    assert cli.run(["shrink", FOUND, "--limit", "1"]) == 1
    assert len(list(tmp_path.glob("*.yaml"))) == 1
    assert set(Path(cli.__file__).parents[2].glob("scenarios/regressions/*")) == before
