"""Commands `report` and `explain`: what campaigns came to as one page, and what a word in it means."""

import difflib
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.inputs import InputError
from cluster.reports.glossary import GLOSSARY, known_words, meanings
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.render import groups_of, overall, render_page
from cluster.reports.page.timelines import draw_timelines
from cluster.storage.artefact import write_atomically

PAGE = "report.html"


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Campaign folders.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the report. Default: the last DIR.")] = None,
    timelines: Annotated[int, typer.Option(min=0, help="Findings that are replayed for a timeline, at most.")] = 20,
) -> int:
    """Write report.html: verdict, findings with timelines and replay commands, coverage, in one offline file."""
    campaigns = [campaign for folder in folders for campaign in read_campaigns(folder)]
    folder = out if out is not None else folders[-1]
    target = folder / PAGE
    try:
        drawn = draw_timelines([group.finding for group in groups_of(campaigns)], folder, timelines)
        write_atomically(target, render_page(campaigns, drawn))
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}; give another --out") from error
    print(f"{overall(campaigns).headline}: {target}")
    return EXIT_AGREED


def explain(
    word: Annotated[str | None, typer.Argument(metavar="[WORD]", help="Default: list the words.")] = None,
) -> int:
    """Say what a word of reports and messages means: a plane, a probe, a variable, a fault, a verdict."""
    if word is None:
        print("\n".join(GLOSSARY))
        return EXIT_AGREED
    found = list(meanings(word))
    if not found:
        near = difflib.get_close_matches(word.lower(), known_words(), n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`specstorm explain` lists words"
        raise InputError(f"unknown word {word!r}; {hint}")
    for kind, text in found:
        print(f"{word} ({kind}): {text}")
    return EXIT_AGREED
