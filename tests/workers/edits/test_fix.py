"""Fixes: strict reading; applied completely or not at all."""

from pathlib import Path

import pytest

from scenarios.strict_yaml import ScenarioError
from workers.edits.fix import fixes_of, select_edits, select_fixes

SOURCE = "def f(a):\n    return a + 1\n\n\ndef g(a):\n    return a\n"


def write(folder: Path, name: str, *edits: str) -> None:
    (folder / name).mkdir()
    (folder / name / "fix.yaml").write_text("summary: Fixes it.\nedits:\n" + "".join(edits))


def replacing(function: str, find: str, put: str) -> str:
    return f"  - at: package.module:{function}\n    find: {find}\n    put: {put}\n"


def installed(folder: Path, source: str = SOURCE) -> Path:
    (folder / "site" / "package").mkdir(parents=True, exist_ok=True)
    (folder / "site" / "package" / "module.py").write_text(source)
    return folder / "site"


def test_all_fixes_that_match_are_applied(tmp_path: Path) -> None:
    write(tmp_path, "package_a", replacing("f", "a + 1", "a + 2"))
    write(tmp_path, "package_b", replacing("g", "return a", "return -a"))
    found = select_edits(fixes_of("package", tmp_path), [installed(tmp_path)])
    assert (found.names, dict(found.refused)) == (("package_a", "package_b"), {})
    assert [edit.put for edit in found.by_module["package.module"]] == ["a + 2", "return -a"]


def test_fix_with_one_edit_that_does_not_match_is_not_applied_at_all(tmp_path: Path) -> None:
    write(tmp_path, "package_a", replacing("f", "a + 1", "a + 2"), replacing("g", "a + 1", "a + 2"))
    write(tmp_path, "package_b", replacing("g", "return a", "return -a"))
    found = select_edits(fixes_of("package", tmp_path), [installed(tmp_path)])
    assert found.names == ("package_b",)
    assert found.refused["package_a"] == "package.module:g: 'a + 1' matches 0 times; expected once"
    assert [edit.put for edit in found.by_module["package.module"]] == ["return -a"]


def test_later_fix_of_the_same_part_is_not_applied(tmp_path: Path) -> None:
    write(tmp_path, "package_a", replacing("f", "a + 1", "a + 2"))
    write(tmp_path, "package_b", replacing("f", "return a + 1", "return 7"))
    found = select_edits(fixes_of("package", tmp_path), [installed(tmp_path)])
    assert (found.names, set(found.refused)) == (("package_a",), {"package_b"})


def test_fix_must_match_the_overlay_if_there_is_one(tmp_path: Path) -> None:
    write(tmp_path, "package_a", replacing("f", "a + 1", "a + 2"))
    (tmp_path / "checkout").mkdir()
    laid_over = installed(tmp_path / "checkout", SOURCE.replace("a + 1", "a + 3"))
    found = select_edits(fixes_of("package", tmp_path), [laid_over, installed(tmp_path)])
    assert (found.names, set(found.refused)) == ((), {"package_a"})


def test_selected_returns_all_named_or_no_fixes(tmp_path: Path) -> None:
    write(tmp_path, "package_a", replacing("f", "a + 1", "a + 2"))
    write(tmp_path, "package_b", replacing("g", "return a", "return -a"))
    fixes = fixes_of("package", tmp_path)
    assert (set(select_fixes(fixes, "all")), set(select_fixes(fixes, ""))) == ({"package_a", "package_b"}, set())
    assert set(select_fixes(fixes, "package_b")) == {"package_b"}
    with pytest.raises(KeyError, match="package_c"):
        select_fixes(fixes, "package_c")


def test_invalid_fix_file_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, "package_a", "  - at: package.module:f\n    find: a\n")
    with pytest.raises(ScenarioError, match=r"package_a/fix.yaml:3: .*find needs put"):
        fixes_of("package", tmp_path)


@pytest.mark.parametrize(("package", "least"), [("vllm", 27), ("sglang", 9)])
def test_fixes_of_all_findings_are_valid(package: str, least: int) -> None:
    fixes = fixes_of(package)
    assert len(fixes) >= least
    assert all(fix.summary.endswith(".") and fix.package == package for fix in fixes.values())
