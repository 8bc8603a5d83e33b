"""Annotations of findings as workflow commands for GitHub Actions."""

from collections.abc import Iterator, Sequence

from cluster.reports.page.findings import Finding
from cluster.reports.sarif import file_of
from scenarios.visible import visible_text

_TITLE_MAX = 120


def annotations(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield one `::error` workflow command per finding, which a GitHub runner reads from stdout."""
    for finding in findings:
        title = f"{finding.verdict.kind}, plane {finding.plane}: {finding.headline}"
        properties = {"file": file_of(finding), "line": "1", "title": title[:_TITLE_MAX]}
        named = ",".join(f"{name}={_property(text)}" for name, text in properties.items() if text is not None)
        yield f"::error {named}::{_data(chr(10).join(finding.lines))}"


def _data(text: str) -> str:
    return visible_text(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
