"""Option `--fixes`: fixes of findings that are applied before an engine runs."""

from pathlib import Path

import pytest

from cluster.cli.inputs import InputError, check_fixes
from cluster.dispatch.job import code_digest
from workers.edits.fix import fixes_of


@pytest.mark.parametrize(
    ("asked", "package", "fixes"),
    [
        ("none", "vllm", ""),
        ("all", "vllm", "all"),
        ("all", "", ""),
        ("races", "vllm", "races"),
        ("races", "", ""),
        ("vllm_min_tokens_bonus", "vllm", "vllm_min_tokens_bonus"),
        ("vllm_session_seeds, vllm_grammar_rows", "vllm", "vllm_grammar_rows,vllm_session_seeds"),
    ],
)
def test_check_fixes_returns_all_sorted_names_or_nothing(asked: str, package: str, fixes: str) -> None:
    assert check_fixes(asked, package) == fixes


@pytest.mark.parametrize("package", ["vllm", ""])
def test_check_fixes_refuses_a_name_without_a_fix(package: str) -> None:
    with pytest.raises(InputError, match="--fixes names 'vllm_min_tokens_bonos'"):
        check_fixes("vllm_min_tokens_bonos", package)


def test_check_fixes_suggests_similar_names() -> None:
    with pytest.raises(InputError, match="did you mean vllm_min_tokens_bonus"):
        check_fixes("vllm_min_tokens_bonos", "vllm")
    assert "vllm_min_tokens_bonus" in fixes_of("vllm")


def test_code_digest_changes_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "findings" / "vllm_a").mkdir(parents=True)
    file = tmp_path / "findings" / "vllm_a" / "fix.yaml"
    file.write_text("summary: One.\n")
    before = code_digest(tmp_path, ("findings",))
    file.write_text("summary: Two.\n")
    assert code_digest(tmp_path, ("findings",)) != before
