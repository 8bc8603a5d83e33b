"""Page of a finding: head (severity, versions ...), title, and sections for maintainers.

The head is between two lines `---`. The title says what a client sees, after the name of the engine.
"""

from typing import Literal, get_args

from scenarios import strict_yaml
from scenarios.spec import Value
from workers.edits.fix import FINDINGS, PAGE

# In the order of `findings/README.md`, which defines each.
Severity = Literal["wrong tokens", "wrong result", "crash", "hang", "lost efficiency", "observation", "CPU build"]
SEVERITIES = get_args(Severity)
_LINE = "---\n"


class Head(Value):
    """Head of a finding's page: severity, engine part, affected versions, upstream reports.

    `runner` names the model runners that show the bug; it is empty for an engine with one runner. `upstream` has
    numbers of issues and pull requests, and is empty if none was found.
    """

    severity: Severity
    area: str
    versions: str
    runner: Literal["", "V1", "V2", "V1, V2"] = ""
    upstream: str = ""


def head_of(name: str) -> Head:
    """Return the head of a finding's page.

    Raises:
        ScenarioError: it is not valid YAML.
        pydantic.ValidationError: a key is missing or unknown.
    """
    data, _ = strict_yaml.read(_parts(name)[0], str(FINDINGS / name / PAGE))
    return Head.model_validate(data)


def page_of(name: str) -> str:
    """Return the text of a finding's page, without its head."""
    return _parts(name)[1]


def versions_of(head: Head) -> str:
    """Return the affected versions as a sentence for an issue."""
    return f"{head.versions}{f', {head.runner} model runner' if head.runner else ''}."


def _parts(name: str) -> tuple[str, str]:
    text = (FINDINGS / name / PAGE).read_text(encoding="utf-8")
    assert text.startswith(_LINE), f"the page of {name} has a head"
    head, _, body = text.removeprefix(_LINE).partition(_LINE)
    return head, body
