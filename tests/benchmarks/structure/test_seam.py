"""Lines that exist for SGLang only, counted in a synthetic tree and in the project."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.structure.seam import ROOT, SERVING, asked_alone, seam
from workers.targets.sglang.installation import SGLANG

FILES = {
    "workers/targets/registry.py": "SGLANG: 1\nVLLM: 2\n",
    "workers/faults/waits.py": 'id="sglang-28034-inputs-overwritten"\nsource="sglang PRs #22113 and #28034"\n',
    "scenarios/spec.py": "plan_stream = False\ndepth = 2\nmixed_chunks_and_more = 1\n",
    "scenarios/scenario.schema.json": '{\n  "tree_width": {\n    "default": 1\n  },\n  "depth": {\n  }\n}\n',
    "workers/judge/passes.py": "def attends(row):\n    first = row\n    return first\n\n\ndef others(row): ...\n",
    "workers/targets/sglang/target.py": "sglang = 1\n",
    "tests/test_it.py": "sglang = 1\n",
}


def tree(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    return root


def test_lines_that_serve_sglang_are_counted(tmp_path: Path) -> None:
    found = seam(tree(tmp_path), SGLANG, {"workers/judge/passes.py": ("attends",)})
    assert {file: [line.partition(":")[0] for line in lines] for file, lines in found.items()} == {
        "workers/targets/registry.py": ["1"],
        "scenarios/spec.py": ["1"],
        "scenarios/scenario.schema.json": ["2", "3", "4"],
        "workers/judge/passes.py": ["1", "2", "3"],
    }


def test_missing_listed_line_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"passes\.py has no line with 'reads'"):
        seam(tree(tmp_path), SGLANG, {"workers/judge/passes.py": ("reads",)})


def test_sglang_only_names_follow_from_capabilities() -> None:
    assert asked_alone(SGLANG) == {"plan_stream", "relay_lengths", "mixed_chunks", "tree_width", "ngram_corpus"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says which files are the project's")
def test_at_most_100_lines_outside_its_folders_serve_sglang() -> None:
    found = seam(ROOT, SGLANG, SERVING)
    written = {file: len(lines) for file, lines in found.items() if not file.endswith(".json")}
    assert sum(written.values()) <= 100, written
