"""Page of a finding: a head of values, and a text for maintainers of the engine.

The head is between two lines `---`.
"""

from typing import Literal, get_args

from scenarios import strict_yaml
from scenarios.spec import Value
from workers.edits.fix import FINDINGS, PAGE

Severity = Literal["outage", "wrong output", "observation", "CPU build"]
SEVERITIES = get_args(Severity)
_LINE = "---\n"


class Head(Value):
    """The effect of a bug on a client, its severity, its part of the engine, affected versions.

    An observation changes no output: drafts are accepted less often, or a race was harmless in every run.
    """

    sees: str
    severity: Severity
    area: str
    versions: str


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


def _parts(name: str) -> tuple[str, str]:
    text = (FINDINGS / name / PAGE).read_text(encoding="utf-8")
    assert text.startswith(_LINE), f"the page of {name} has a head"
    head, _, body = text.removeprefix(_LINE).partition(_LINE)
    return head, body
