"""SARIF 2.1.0 of campaigns for code scanning services: one result per finding."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.campaigns.exit_codes import EXIT_BAD_INPUT
from cluster.dispatch.job import build
from cluster.reports.page.findings import Finding
from cluster.reports.page.glossary import meanings
from cluster.reports.page.render import Overall
from cluster.storage.artefact import portable
from scenarios.visible import visible_data, visible_line

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PRINT = "specstorm/v1"


def sarif_json(findings: Sequence[Finding], overall: Overall) -> str:
    """Return the SARIF log: one rule per state category (plane), one result per finding."""
    planes = list(dict.fromkeys(finding.plane for finding in findings))
    driver = {
        "name": "specstorm",
        "semanticVersion": build(),
        "rules": [_rule(plane) for plane in planes],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [
            {"executionSuccessful": overall.exit_code < EXIT_BAD_INPUT, "exitCode": overall.exit_code},
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, planes.index(finding.plane)) for finding in findings],
    }
    return json.dumps(visible_data({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}), indent=2) + "\n"


def _rule(plane: str) -> dict[str, Any]:
    texts = [text for kind, text in meanings(plane) if kind == "plane"]
    return {
        "id": f"specstorm/{plane}",
        "name": plane,
        "shortDescription": {"text": f"engine and oracle part in plane {plane}"},
        "fullDescription": {"text": texts[0] if texts else plane},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    file = file_of(finding)
    places = [] if file is None else [{"artifactLocation": {"uri": quote(file)}, "region": {"startLine": 1}}]
    return {
        "ruleId": f"specstorm/{finding.plane}",
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": "\n".join(map(visible_line, [finding.headline, *finding.lines]))},
        "locations": [{"physicalLocation": place} for place in places],
        "partialFingerprints": {_PRINT: blake2b(finding.bug.encode(), digest_size=16).hexdigest()},
        "occurrenceCount": max(1, finding.count),
        "properties": {"fingerprint": finding.bug},
    }


def file_of(finding: Finding) -> str | None:
    """Return the file of a finding: its first scenario, else its artefact."""
    scenario = next((name for name in finding.names if Path(name).is_file()), None)
    if scenario is not None:
        return portable(scenario)
    return None if finding.artefact is None else portable(str(finding.folder / finding.artefact))
