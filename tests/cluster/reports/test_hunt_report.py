"""Report of a hunt: findings of a known bug with a fix that does not apply."""

from pathlib import Path

import pytest

from cluster.reports import hunt_report
from workers.edits.edit import Edit
from workers.edits.fix import Fix, SelectedEdits, select_edits
from workers.edits.proofs import AGREES, Proof
from workers.targets.specstorm import Specstorm
from workers.targets.target import RunConfig


class Refusing(Specstorm):
    """Kind of an engine with sources that the edit of a fix no longer matches."""

    def __init__(self, sources: Path) -> None:
        self._sources = sources

    def fixed(self, config: RunConfig) -> SelectedEdits:
        edit = Edit(at="engine:run", find="x + 1", put="x + 2")
        return select_edits({"engine_sums": Fix(summary="s", edits=(edit,))}, [self._sources])


@pytest.mark.parametrize(("bug", "is_named"), [("tokens tokens", True), ("kv attended", False)])
def test_finding_of_a_known_bug_whose_fix_does_not_apply_names_it(
    bug: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine.py").write_text("def run(x):\n    return x + 3\n")
    proof = Proof(
        name="engine_sums", engine="e", version="1", bug="tokens tokens", released="d", fixed=AGREES, all_fixed=AGREES
    )
    monkeypatch.setattr(hunt_report, "target_kind", lambda engine: Refusing(tmp_path))
    monkeypatch.setattr(hunt_report, "proofs_of", lambda: {proof.name: proof})
    lines = hunt_report.unfixed_lines(bug, RunConfig())
    assert [line.startswith("perhaps known: engine_sums, whose fix does not apply: ") for line in lines] == [
        True
    ] * is_named
