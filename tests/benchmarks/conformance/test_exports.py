"""Selection of findings for exported tests, and the folder with patched modules."""

from pathlib import Path

import pytest

from benchmarks.conformance import exports
from benchmarks.conformance.exports import SGLANG_TESTS, VLLM_TESTS, exported, installation_of, lay_out, names_of


def test_names_of_defaults_to_findings_with_trace_or_fix() -> None:
    names = names_of((), None, 0)
    assert {"vllm_min_tokens_bonus", "vllm_prompt_logprobs_behind_drafts", "sglang_penalties_forgotten"} <= {*names}
    assert names_of((), 3, 7) == names_of((), 3, 7) != names_of((), 3, 8)
    assert names_of(["vllm_grammar_rows"], None, 0) == ["vllm_grammar_rows"]


def test_name_without_trace_and_fix_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exports.main(["heads_for_tokens"]) == 2
    assert "'heads_for_tokens' has no trace and no fix" in capsys.readouterr().err


def test_finding_without_trace_is_not_exported(tmp_path: Path) -> None:
    found = exported("vllm_prompt_logprobs_behind_drafts", VLLM_TESTS.config, tmp_path)
    assert (found.reason, found.is_refused) == ("there is no trace", True)


def test_finding_runs_in_the_installation_of_its_engine_and_release() -> None:
    assert installation_of("sglang_row_overflow") is SGLANG_TESTS
    assert installation_of("vllm_min_tokens_bonus") is VLLM_TESTS
    # Version 0.33.0 does not have this bug.
    assert installation_of("vllm_grammar_rows").config.release == "0.32.0"


def test_lay_out_copies_only_the_files_of_a_patch(tmp_path: Path) -> None:
    package, made = tmp_path / "site" / "vllm", tmp_path / "made"
    (package / "core" / "sched").mkdir(parents=True)
    made.mkdir()
    for file, text in {"__init__.py": "", "core/sched/a.py": "x = 1\n", "core/sched/b.py": "y = 1\n"}.items():
        (package / file).write_text(text)
    file = "vllm/core/sched/a.py"
    lay_out(package, f"--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-x = 1\n+x = 2\n", made)
    assert (made / file).read_text() == "x = 2\n"
    assert (package / "core" / "sched" / "a.py").read_text() == "x = 1\n"
    links = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_symlink()}
    assert links == {"vllm/__init__.py", "vllm/core/sched/b.py"}
