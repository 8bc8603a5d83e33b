"""Render the report page as one file that contains its style and script.

All text from files and engines is escaped in one place: Jinja's autoescape, after `visible`.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.dispatch.job import build
from cluster.reports.page.campaign import Campaign
from cluster.reports.page.comparison import comparisons
from cluster.reports.page.coverage import matrix_of
from cluster.reports.page.faults import kill_matrix, survival_chart
from cluster.reports.page.findings import Finding
from cluster.reports.page.glossary import GLOSSARY, meanings
from cluster.reports.page.nights import Nights
from cluster.reports.page.timelines import TimelinePicture
from cluster.reports.page.trends import trends_of
from scenarios.probes import PROBES
from scenarios.visible import visible_data, visible_text

_TEMPLATES = "templates"


@dataclass(frozen=True, slots=True)
class Overall:
    """Result of all campaigns on a page: exit code, headline, sums.

    `judged` lists the amounts that are less than planned.
    """

    exit_code: int
    headline: str
    totals: Mapping[str, int]
    judged: str = ""

    @property
    def line(self) -> str:
        """Return the headline, and the judged amounts if they are less than planned."""
        return f"{self.headline} (judged: {self.judged})" if self.judged else self.headline


@dataclass(frozen=True, slots=True)
class Group:
    """One bug on the page: the finding in the last campaign that has it, and its counts."""

    finding: Finding
    met: tuple[tuple[str, int, str], ...]


def groups_of(campaigns: Sequence[Campaign]) -> list[Group]:
    """Return the bugs of all campaigns, in the order of discovery.

    `met` has a campaign name, a count and its unit.
    """
    bugs = dict.fromkeys(bug for campaign in campaigns for bug in campaign.findings)
    groups = []
    for bug in bugs:
        having = [campaign for campaign in campaigns if bug in campaign.findings]
        met = []
        for campaign in having:
            count = campaign.findings[bug].count
            unit = "trace" if campaign.hunt is not None else "scenario"
            met.append((campaign.name, count, unit if count == 1 else f"{unit}s"))
        groups.append(Group(having[-1].findings[bug], tuple(met)))
    return groups


def visible(value: object) -> object:
    """Return text with hidden characters escaped; other values and markup as they are."""
    return value if isinstance(value, Markup) else visible_data(value)


def term(word: str, text: str = "") -> Markup | str:
    """Return a word with its meaning as a tooltip; `text` is displayed instead if given.

    A word without a meaning is unchanged.
    """
    found = "; ".join(meaning for _, meaning in meanings(word))
    shown = visible_text(text or word)
    if not found:
        return shown
    markup = Markup('<span class="term" data-word="{}" title="{}">{}</span>')
    return markup.format(visible_text(word), visible_text(found), shown)


def overall(campaigns: Sequence[Campaign], nights: Nights | None = None) -> Overall:
    """Return the result of all campaigns; new findings count more than missing verdicts."""
    bugs = {bug for campaign in campaigns for bug in campaign.findings}
    known = bugs & set(nights.result.known if nights is not None else ())
    some_known = f", {len(known)} known" if known else ""
    if bugs - known:
        code, headline = EXIT_FOUND, f"{len(bugs)} {'finding' if len(bugs) == 1 else 'findings'}{some_known}"
    elif any(campaign.gaps for campaign in campaigns):
        # The judged amount of a campaign that could not be read completely is unknown.
        is_begun = any(campaign.is_judged or campaign.remarks for campaign in campaigns)
        how = "Not judged to the end" if is_begun else "Nothing was judged"
        code, headline = EXIT_NOT_JUDGED, f"{how}{some_known}"
    elif known:
        code, headline = EXIT_AGREED, f"Nothing new{some_known}{_as_far(campaigns)}"
    else:
        is_measured = all(campaign.trials and not (campaign.rows or campaign.hunt) for campaign in campaigns)
        code, headline = EXIT_AGREED, "All faults found" if is_measured else "All agreed"
        headline += _as_far(campaigns)
    totals = {name: sum(each.totals[name] for each in campaigns) for name in ("runs", "steps", "captures")}
    short = [amount.text for each in campaigns for amount in each.amounts if amount.is_short]
    return Overall(code, headline, totals, ", ".join(short))


def _as_far(campaigns: Sequence[Campaign]) -> str:
    """Return an addition to the headline if less was judged than planned, else ""."""
    is_short = any(amount.is_short for campaign in campaigns for amount in campaign.amounts)
    return ", as far as judged" if is_short else ""


def render_page(
    campaigns: Sequence[Campaign], timelines: Mapping[str, TimelinePicture], nights: Nights | None = None
) -> str:
    """Return the HTML page about some campaigns.

    `timelines` are the drawn timelines by bug, `nights` the states of findings over nights.
    """
    groups = groups_of(campaigns)
    script, style = _text("script.js"), _text("style.css")
    environment = Environment(
        loader=PackageLoader("cluster.reports.page", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )
    environment.filters["number"] = _number
    environment.globals["term"] = term
    return environment.get_template("page.html").render(
        build=build(),
        campaigns=campaigns,
        overall=overall(campaigns, nights),
        nights=nights,
        trends=trends_of(campaigns),
        groups=groups,
        has_findings=bool(groups or (nights is not None and nights.result.gone)),
        has_coverage=any(campaign.num_probed for campaign in campaigns),
        timelines=timelines,
        matrix_of=matrix_of,
        compared=comparisons(campaigns),
        kill_matrix=kill_matrix,
        survival_chart=survival_chart,
        data=htmlsafe_json_dumps(visible_data([campaign.rows for campaign in campaigns]), separators=(",", ":")),
        style=Markup(style),
        script=Markup(script),
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        glossary=GLOSSARY,
        probes=PROBES,
    )


def _text(name: str) -> str:
    return files("cluster.reports.page").joinpath(_TEMPLATES, name).read_text(encoding="utf-8").strip()


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,}"
