"""Markdown text of an upstream issue on a finding: symptom, location, reproduction, fix.

The text of the finding's page is preferred to the text of the verdict.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cluster.reports.markdown import block, inline, join_paragraph_lines, span
from cluster.statistics.fault_table import Document
from scenarios.scenario_file import RunOn
from scenarios.visible import visible_text
from workers.record.verdict import Verdict
from workers.record.words import finding_lines, headline_text
from workers.targets.exported import ExportedTest

# Sections of a page of a finding.
SEEN, CAUSE, VERSIONS, UPSTREAM = "What a client sees", "Cause", "Versions", "Upstream"
_SECTION = "\n## "


class EvidenceDocument(Document):
    """What the run of `export` found: its configuration and verdict."""

    run_on: RunOn
    verdict: Verdict


class Issue(NamedTuple):
    """The parts of an issue's text; some may be empty."""

    title: str
    evidence: EvidenceDocument
    page: Mapping[str, str]
    test_file: str
    test: ExportedTest
    patch: str


def title_of(page: str, verdict: Verdict) -> str:
    """Return the title of a finding: its page's heading, or its verdict's headline."""
    heading = page.partition("\n")[0].removeprefix("# ")
    if heading:
        return heading.partition(": ")[2] or heading
    return headline_text(verdict)


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a finding's page by heading, each paragraph on one line."""
    found = {}
    for section in page.split(_SECTION)[1:]:
        name, _, text = section.partition("\n")
        found[name] = join_paragraph_lines(text.strip())
    return found


def places_of(patch: str) -> list[str]:
    """Return the source location of each hunk in a patch, as `FILE:LINE`."""
    found, file = [], ""
    for line in patch.splitlines():
        if line.startswith("--- a/"):
            file = line.removeprefix("--- a/").partition("\t")[0]
        elif line.startswith("@@ -"):
            start = int(line.removeprefix("@@ -").partition(" ")[0].partition(",")[0])
            found.append(f"{file}:{start + _context(patch, line)}")
    return found


def _context(patch: str, hunk: str) -> int:
    """Return how many unchanged lines precede the first change of a hunk."""
    behind = patch.partition(f"{hunk}\n")[2].splitlines()
    return next((count for count, line in enumerate(behind) if line[:1] in ("+", "-")), 0)


def issue_text(issue: Issue) -> str:
    """Return the Markdown text of an issue about a finding."""
    return visible_text("\n".join(_lines(issue))) + "\n"


def _lines(issue: Issue) -> Iterator[str]:
    evidence, page = issue.evidence, issue.page
    yield f"# {inline(f'{issue.title[:1].upper()}{issue.title[1:]}')}"
    yield from _section(SEEN, page.get(SEEN, ""))
    yield from _section("Evidence", "\n".join(_found(evidence.verdict)))
    yield from _section("Where", _where(issue))
    yield from _section(VERSIONS, page.get(VERSIONS, "") or f"{issue.test.engine} {evidence.run_on.version}.")
    yield from _section(UPSTREAM, page.get(UPSTREAM, ""))
    how = f"{span(f'pytest {issue.test_file}')} needs {issue.test.needs}. Its test:"
    yield from _section("How to reproduce", f"{how}\n\n{block('python', issue.test.body)}")
    fix = f"With this change the test passes:\n\n{block('diff', issue.patch.rstrip())}"
    yield from _section("Fix", fix if issue.patch else "")


def _section(heading: str, text: str) -> Iterator[str]:
    if text:
        yield from ("", f"## {heading}", "", text)


def _found(verdict: Verdict) -> list[str]:
    """Return the lines that report a verdict, without our names of known bugs."""
    return _as_list(finding_lines(verdict.model_copy(update={"known": (), "needs": ()})))


def _as_list(lines: list[str]) -> list[str]:
    return [f"- {inline(line)}" for line in lines]


def _where(issue: Issue) -> str:
    places = [span(place) for place in places_of(issue.patch)]
    said = f"{issue.test.engine} {issue.evidence.run_on.version}, {', '.join(places)}.\n\n" if places else ""
    return (said + issue.page.get(CAUSE, "")).strip()
