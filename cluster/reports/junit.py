"""JUnit XML of campaigns for CI servers: a test case per scenario and per finding of a hunt."""

from collections.abc import Collection, Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cluster.campaigns.nightly import NOT_JUDGED
from cluster.reports.page.campaign import Campaign
from cluster.reports.page.findings import Finding
from scenarios.visible import visible_line

_FINDINGS = ("diverged", "crashed", "stuck")


def junit_xml(campaigns: Sequence[Campaign], known: Collection[str] = ()) -> str:
    """Return the document: findings are failures, scenarios without verdict are errors.

    A known finding is skipped.
    """
    root = Element("testsuites", name="specstorm")
    for campaign in campaigns:
        suite = SubElement(root, "testsuite", name=visible_line(campaign.name))
        for case in _cases(campaign, known):
            suite.append(case)
        _count(suite, list(suite))
    _count(root, [case for suite in root for case in suite])
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _count(element: Element, cases: Sequence[Element]) -> None:
    element.set("tests", str(len(cases)))
    for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        element.set(plural, str(sum(case.find(kind) is not None for case in cases)))


def _cases(campaign: Campaign, known: Collection[str]) -> Iterator[Element]:
    by_anchor = {finding.anchor: finding for finding in campaign.findings.values()}
    for row in campaign.rows:
        scenario, kind, anchor = row[0], row[1], row[-1]
        case = _case(campaign, scenario)
        if kind in _FINDINGS:
            _fail(case, kind, by_anchor[anchor], known)
        elif kind != "agreed":
            message = kind if kind == NOT_JUDGED else f"{kind}: not judged"
            SubElement(case, "error", type=visible_line(kind), message=visible_line(message))
        yield case
    for name in campaign.known_missed:
        case = _case(campaign, name)
        SubElement(case, "error", type="missed", message="its fault was not found any more")
        yield case
    if campaign.hunt is not None:
        settings = campaign.hunt.settings
        case = _case(campaign, f"hunt {settings.profile} {settings.seed}")
        for gap in campaign.gaps[:1]:
            SubElement(case, "error", type="gap", message=visible_line(gap))
        yield case
        # A finding of a scenario has a case already.
        reported = {row[-1] for row in campaign.rows}
        for finding in campaign.findings.values():
            if finding.anchor in reported:
                continue
            case = _case(campaign, finding.bug)
            _fail(case, finding.verdict.kind, finding, known)
            yield case


def _case(campaign: Campaign, name: str) -> Element:
    return Element("testcase", classname=visible_line(campaign.name), name=visible_line(name))


def _fail(case: Element, kind: str, finding: Finding, known: Collection[str]) -> None:
    if finding.bug in known:
        SubElement(case, "skipped", message=visible_line(f"known: {finding.headline}"))
        return
    failure = SubElement(case, "failure", type=kind, message=visible_line(finding.headline))
    failure.text = "\n".join(visible_line(line) for line in finding.lines)
