"""Table of findings: each folder has a head, and the table in `findings/README.md` is up to date."""

import pytest

from cluster.reports.finding_page import head_of, page_of
from generate.findings_page import INDEX, page
from workers.edits.fix import FINDINGS, PAGE

NAMES = sorted(file.parent.name for file in FINDINGS.glob(f"*/{PAGE}"))


def test_table_of_findings_is_up_to_date() -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert page(text) == text, "run python -m generate.findings_page"


@pytest.mark.parametrize("name", NAMES)
def test_page_of_a_finding_has_a_head_and_a_title(name: str) -> None:
    assert head_of(name).sees
    assert page_of(name).startswith("# ")
