"""Markdown of hostile texts, parsed as CommonMark, has only text and code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cluster.reports.issue import EvidenceDocument, Issue, issue_text
from cluster.reports.markdown import block, inline, span
from scenarios.scenario_file import RunOn
from tests.cluster.hostile import HOSTILE, judgements
from workers.record.verdict import Judgement
from workers.targets.exported import ExportedTest

HARMLESS = {"inline", "text", "code_inline", "paragraph_open", "paragraph_close", "softbreak"}
MARKUP = (
    *("[a](http://evil.example)", "![a](x)", "<img src=x>", "<!-- x", "http://evil.example", "www.evil.example"),
    *("@team", "see #12", "`a`", "``", "```", "&lt;", "**a**", "# a", "> a", "1. a", "- a", "* a", "| a | b |", "a\\"),
    HOSTILE,
)


def kinds(markdown: str) -> set[str]:
    """Return the kinds of CommonMark tokens in a text."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    return {each.type for token in tokens for each in (token, *(token.children or ()))}


@pytest.mark.parametrize("text", MARKUP)
def test_a_line_becomes_text_or_code(text: str) -> None:
    for shown in (inline(text), span(text)):
        assert kinds(f"a {shown} b") <= HARMLESS
        assert "\n" not in shown


@given(st.text(alphabet="`a \n~[]()<>@#*_|&;!-\\"))
def test_no_text_ends_its_span_or_block(text: str) -> None:
    assert kinds(f"a {span(text)} b") <= HARMLESS
    assert kinds(block("python", text)) == {"fence"}


def test_plain_words_stay_as_they_are() -> None:
    for text in ("accepted_read is 1, expected 4", "compute:copy_d2h@1 (vllm/a.py:9)", "3 < 4 of [3]", "a & b"):
        assert inline(text) == text


@pytest.mark.parametrize("judgement", judgements().values())
def test_a_hostile_finding_adds_nothing_to_its_issue(judgement: Judgement) -> None:
    evidence = EvidenceDocument(specstorm="0", exit_code=0, run_on=RunOn(version="0.32.0"), verdict=judgement.verdict)
    test = ExportedTest("", HOSTILE, "vLLM", "vLLM")
    issue = issue_text(Issue(HOSTILE, evidence, {}, HOSTILE, test, f"--- a/x\n@@ -1 +1 @@\n+{HOSTILE}"))
    found = kinds(issue)
    assert found <= HARMLESS | {"heading_open", "heading_close", "bullet_list_open", "bullet_list_close"} | {
        *("list_item_open", "list_item_close", "fence")
    }
    assert sum(token.type == "heading_open" for token in MarkdownIt().parse(issue)) == 6
