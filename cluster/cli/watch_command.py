"""Command `watch`: progress of a campaign that another process runs."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.campaign import say
from cluster.reports.report import findings_text, left_texts
from cluster.storage.campaign import Campaign
from cluster.storage.progress import Snapshot, read_progress

_ERASE = "\r\x1b[2K"


def watch(
    campaign: Annotated[Path, typer.Argument(metavar="DIR", help="Campaign folder.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
) -> int:
    """Show rate, time left and findings of a campaign that is running elsewhere, until it ends."""
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
        text = _line(campaign, is_running, read_progress(campaign), losses)
        artefacts.update(new)
        for name in new:
            print(f"{_ERASE if on_terminal else ''}found: {campaign / 'artefacts' / name}")
        if on_terminal and is_running and not once:
            print(f"{_ERASE}{text}", end="", flush=True)
        elif text != last or not is_running:
            print(f"{_ERASE if on_terminal else ''}{text}", flush=True)
        last = text
        if once or not is_running:
            return EXIT_AGREED
        time.sleep(every)


def _line(campaign: Path, is_running: bool, progress: Snapshot | None, losses: int) -> str:
    parts = [f"{campaign}: {'running' if is_running else 'not running'}"]
    if progress is not None:
        of = "" if progress.total is None else f" of {progress.total:,}"
        parts.append(f"{progress.done:,}{of} done")
        shrinking = f" ({progress.shrinking} being shrunk)" if progress.shrinking else ""
        if progress.done or progress.findings:
            parts.append(f"{findings_text(progress.findings, progress.expected)}{shrinking}")
        if is_running:
            parts += [f"{progress.rate:.2f}/s", *left_texts(progress.left)]
    if losses:
        parts.append(f"{losses} {'attempt' if losses == 1 else 'attempts'} lost")
    return ", ".join(parts)
