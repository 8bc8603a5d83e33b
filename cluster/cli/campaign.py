"""Campaign folder of a command: created or resumed, checked, removed if unused."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from cluster.campaigns.exit_codes import EXIT_NOT_JUDGED
from cluster.dispatch.host import PoolError
from cluster.dispatch.inside import write_inside
from cluster.dispatch.job import program
from cluster.dispatch.ray_job import job_id
from cluster.reports.job_log import log_artefacts
from cluster.reports.terminal import say, show
from cluster.storage.errors import CampaignError, StoreError, reading_values, store_error
from cluster.storage.lines import RESULTS, write_lines
from cluster.storage.lock import IGNORED, Claim, claim, claim_next
from cluster.storage.store import Store

PARENT = Path("campaigns")
# One of these exists from the first moment of a campaign.
_OWN = ("campaign.sqlite", "campaign.lock")
# Errors that end a campaign which can be resumed.
CampaignFailure = OSError, StoreError, PoolError


@contextmanager
def open_campaign(
    out: Path | None, stem: str, context: typer.Context, seed: int | None = None, engine: str = ""
) -> Iterator[Store]:
    """Open the store of the named folder, or of a new folder in `campaigns`.

    A new campaign folder is removed if it cannot be opened or Ray cannot be reached. If the command is interrupted, the
    command that continues it is printed.

    Raises:
        CampaignError: the folder cannot be created or written, or holds something other than a campaign.
    """
    claimed = claim_campaign(out, stem)
    folder = claimed.folder
    try:
        with open_store(claimed, seed, engine) as store:
            yield store
        log_artefacts(folder, sys.stderr)
    except KeyboardInterrupt:
        show(f"interrupted; {resume_sentence(context, folder)}", to=sys.stderr)
        raise


def claim_campaign(out: Path | None, stem: str) -> Claim:
    """Create and lock the named folder, or a new folder in `campaigns`.

    Raises:
        CampaignError: it cannot be created, holds something other than a campaign, or another process writes it.
    """
    if out is None:
        try:
            return claim_next(PARENT, stem)
        except OSError as error:
            where = f"{Path.cwd() / PARENT}: {error.strerror}"
            raise CampaignError(f"{where}; name a folder that can be written with --out") from error
    if os.path.lexists(out):
        _check_folder(out)
    return claim(out)


@contextmanager
def open_store(place: Path | Claim, seed: int | None = None, engine: str = "") -> Iterator[Store]:
    """Open a campaign for writing.

    Print damage at the start, and restored or lost data at the end.

    Results are also written as JSON lines.

    Raises:
        CampaignError: it cannot be opened.
    """
    try:
        store = Store(place, seed, engine)
    except StoreError as error:
        raise CampaignError(f"{error}; give another --out") from error
    with store:
        with reading_values(store.folder, "continue it"):
            store.runs()
        for remark in store.remarks:
            say(remark)
        yield store
        try:
            with reading_values(store.folder, "continue it"):
                write_lines(store, store.folder / RESULTS)
            losses = store.losses(store.run.run)
            for remark in store.restored:
                say(remark)
        except (StoreError, CampaignError) as error:
            say(str(error))
            store.is_kept = False
            return
        if not store.is_in_place:
            say(f"{store.folder}: was removed or replaced while it was written; the latest results are lost")
            store.is_kept = False
    if losses:
        count = losses.total()
        reasons = ", ".join(f"{reason} ({number})" for reason, number in sorted(losses.items()))
        say(f"{count} {'attempt was' if count == 1 else 'attempts were'} lost with their workers: {reasons}")


def code_of(store: Store, code: int) -> int:
    """Return the exit code of a command; never 0 while results are missing on disk."""
    return code if store.is_kept else code or EXIT_NOT_JUDGED


def _check_folder(folder: Path) -> None:
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name not in IGNORED)
    except OSError as error:
        raise CampaignError(f"{folder}: cannot be used: {error.strerror}; give another --out") from error
    if names and not any(own in names for own in _OWN):
        seen = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
        raise CampaignError(f"{folder}: is not a campaign, it holds {seen}; name a new or an empty folder with --out")


def cause(error: OSError | StoreError | PoolError, folder: Path) -> str:
    """Return a sentence that says why a campaign folder cannot be used or written."""
    return str(store_error(folder, error) if isinstance(error, OSError) else error)


def report_failure(error: OSError | StoreError | PoolError, folder: Path, context: typer.Context) -> None:
    """Print why a campaign stopped, and the command that continues it."""
    say(f"{cause(error, folder)}; {resume_sentence(context, folder)}")


def write_results(
    folder: Path, texts: Mapping[str, str], also: Callable[[], object], code: int, context: typer.Context
) -> int:
    """Write files by name and call `also`; return the exit code, or that of a failed write."""
    try:
        for name, text in texts.items():
            write_inside(folder, name, text + "\n")
        also()
    except OSError as error:
        report_failure(error, folder, context)
        return code or EXIT_NOT_JUDGED
    return code


def with_out(words: Sequence[str], folder: str) -> list[str]:
    """Return a command with --out for its campaign folder, if it has none."""
    named = any(word == "--out" or word.startswith("--out=") for word in words)
    return [*words, *([] if named else ["--out", folder])]


def resume_sentence(context: typer.Context, folder: Path) -> str:
    """Return a sentence with the command that resumes a campaign."""
    words = with_out(context.find_root().obj or (), str(folder))
    how = "submit " if job_id(os.environ) is not None else ""
    return f"continue with: {program()} {how}{shlex.join(words)}"
