"""Commands `report` and `explain`: a page on campaigns, and the meaning of words in it."""

import difflib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.finding_history import known_folder
from cluster.cli.inputs import InputError
from cluster.cli.options import Known
from cluster.dispatch.inside import write_inside
from cluster.reports.annotations import annotations
from cluster.reports.junit import junit_xml
from cluster.reports.page.campaign import Campaign, read_campaigns
from cluster.reports.page.findings import Finding
from cluster.reports.page.glossary import GLOSSARY, known_words, meanings
from cluster.reports.page.nights import read_nights
from cluster.reports.page.render import groups_of, overall, render_page
from cluster.reports.page.timelines import draw_timelines
from cluster.reports.page.trends import nights_of
from cluster.reports.sarif import sarif_json
from cluster.reports.terminal import say, show, show_workflow_command
from workers.targets.target import SPECSTORM

PAGE = "report.html"
TIMELINES = 20


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Campaign folders.")],
    out: Annotated[Path | None, typer.Option(help="Write the report here (default: the last DIR).")] = None,
    timelines: Annotated[
        int, typer.Option(min=0, help="Replay at most this many findings for a timeline.")
    ] = TIMELINES,
    known: Known = None,
    github: Annotated[bool, typer.Option("--github", help="Print new findings as GitHub annotations.")] = False,
) -> int:
    """Write report.html, junit.xml and report.sarif about campaigns.

    The page is one offline file with verdict, findings with timelines, and coverage.
    """
    noted = known_folder(known, SPECSTORM) if known is not None else None
    folder = out if out is not None else folders[-1]
    try:
        headline, findings = write_report(folders, folder, timelines, noted)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; give another --out") from error
    for line in annotations(findings) if github else ():
        show_workflow_command(line)
    show(f"{headline}: {folder / PAGE}")
    return EXIT_AGREED


def write_report(
    folders: Sequence[Path], folder: Path, timelines: int, known: Path | None
) -> tuple[str, Sequence[Finding]]:
    """Write the page, junit.xml and report.sarif of campaigns; return headline and new findings.

    Without `known`, the folder of known findings is that of the campaigns' engine, if there is only one.

    Raises:
        OSError: the folder cannot be written.
    """
    campaigns = _read_once(folders)
    for remark in (remark for campaign in campaigns for remark in campaign.remarks):
        say(remark)
    findings = [group.finding for group in groups_of(campaigns)]
    engines = {finding.config.engine for finding in findings}
    engine = engines.pop() if len(engines) == 1 else SPECSTORM
    known = known if known is not None else known_folder(None, engine)
    is_night = any(night.is_judged for night in nights_of(campaigns))
    nights = read_nights(known, [finding.bug for finding in findings], date.today(), is_night)
    total = overall(campaigns, nights)
    write_inside(folder, PAGE, render_page(campaigns, draw_timelines(findings, folder, timelines), nights))
    write_inside(folder, "junit.xml", junit_xml(campaigns, nights.result.known if nights is not None else ()))
    write_inside(folder, "report.sarif", sarif_json(findings, total))
    return total.line, [each for each in findings if nights is None or nights.state(each.bug) != "known"]


def _read_once(folders: Sequence[Path]) -> list[Campaign]:
    """Return the campaigns in the folders, each once; print the name of a campaign given twice.

    Two folders hold the same campaign if the same processes wrote both.
    """
    found: dict[frozenset[str], tuple[Path, list[Campaign]]] = {}
    for folder in folders:
        campaigns = list(read_campaigns(folder))
        # A folder that no process wrote is identified by its path.
        written = {process.run.run for each in campaigns[:1] for process in each.processes} or {str(folder.resolve())}
        first, _ = found.setdefault(frozenset(written), (folder, campaigns))
        if first is not folder:
            say(f"{folder}: is the campaign of {first}; it is counted once")
    return [campaign for _, campaigns in found.values() for campaign in campaigns]


def explain(
    word: Annotated[
        str | None, typer.Argument(metavar="[WORD]", help="Explain this word (default: list the words).")
    ] = None,
) -> int:
    """Explain a word of reports and messages.

    Such as a plane (state category), probe, variable, fault, event, policy or verdict.
    """
    if word is None:
        show(*GLOSSARY)
        return EXIT_AGREED
    found = list(meanings(word))
    if not found:
        near = difflib.get_close_matches(word.lower(), known_words(), n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`specstorm explain` lists words"
        raise InputError(f"unknown word {word!r}; {hint}")
    for kind, text in found:
        show(f"{word} ({kind}): {text}")
    return EXIT_AGREED
