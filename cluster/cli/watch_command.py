"""Command `watch`: show the progress of a campaign that another process runs."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.report import findings_text, left_texts
from cluster.reports.terminal import rewrite, say, show
from cluster.storage.campaign import Campaign
from cluster.storage.progress import read_progress


def watch(
    campaign: Annotated[Path, typer.Argument(metavar="DIR", help="Campaign folder.")],
    every: Annotated[float, typer.Option(min=0.1, help="Refresh after this many seconds.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Print the progress once and exit.")] = False,
) -> int:
    """Show rate, time left and findings of a running campaign until it ends."""
    on_terminal = sys.stdout.isatty()
    artefacts: set[str] = set()
    said: set[str] = set()
    last = ""
    while True:
        with Campaign(campaign) as seen:
            is_running = seen.is_being_written
            losses = seen.losses().total()
            new = sorted({path.name for path in (campaign / "artefacts").glob("*.yaml")} - artefacts)
            for remark in sorted({*seen.remarks} - said):
                say(remark)
            said.update(seen.remarks)
        text = ", ".join([*(_running(campaign) if is_running else _ended(campaign)), *_lost(losses)])
        artefacts.update(new)
        for name in new:
            if on_terminal:
                rewrite("", sys.stdout)
            show(f"found: {campaign / 'artefacts' / name}")
        if on_terminal and is_running and not once:
            rewrite(text, sys.stdout)
        elif text != last or not is_running:
            if on_terminal:
                rewrite("", sys.stdout)
            show(text)
        last = text
        if once or not is_running:
            return EXIT_AGREED
        time.sleep(every)


def _running(campaign: Path) -> Iterator[str]:
    """Yield progress lines while another process writes the campaign."""
    yield f"{campaign}: running"
    progress = read_progress(campaign)
    if progress is None:
        return
    of = "" if progress.total is None else f" of {progress.total:,}"
    yield f"{progress.done:,}{of} done"
    if progress.done or progress.findings:
        shrinking = f" ({progress.shrinking} being shrunk)" if progress.shrinking else ""
        yield f"{findings_text(progress.findings, progress.expected)}{shrinking}"
    yield f"{progress.rate:.2f}/s"
    yield from left_texts(progress.left)


def _ended(campaign: Path) -> Iterator[str]:
    """Yield lines about an ended campaign: what was judged, and its findings."""
    yield f"{campaign}: not running"
    parts = list(read_campaigns(campaign))
    amounts = [amount.text for part in parts for amount in part.amounts]
    if amounts:
        yield f"judged: {', '.join(amounts)}"
    if any(part.is_judged for part in parts):
        yield findings_text(len({bug for part in parts for bug in part.findings}))


def _lost(losses: int) -> list[str]:
    return [f"{losses} {'attempt' if losses == 1 else 'attempts'} lost"] if losses else []
