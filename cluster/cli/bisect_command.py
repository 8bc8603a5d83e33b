"""Command `bisect`: which release of an engine shows a bug first."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.bisection import Bisection, Status
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.cli.inputs import InputError, bundled, check_trace, config_for, read_trace
from cluster.cli.options import EngineHome, Json, NoLimits
from cluster.dispatch.job import WORKER, build, load_judge
from cluster.reports.documents import BisectDocument, ReleaseEntry
from scenarios.strict_yaml import escaped
from scenarios.trace import Trace
from workers.record.verdict import Agreed, Judgement, is_finding
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.registry import kind_of, known_engines
from workers.targets.target import Device, DeviceError, RunConfig

# Folder of installed releases below the user's home.
CACHE = Path(".cache", "specstorm", "engines")
VERSION = re.compile(r"\d+(\.\d+)+(\.?(post|rc)\d+)?")


def bisect(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artefact, or any scenario file that fails.")],
    *,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The engine. Default: the one that FILE names, else the first that has releases."
        ),
    ] = "",
    versions: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Releases to choose from, oldest first; default: those known to install."),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--environments", metavar="DIR", help="Where releases are installed, one folder each."),
    ] = None,
    lanes: Annotated[
        Device, typer.Option("--device", help="sim (simulated streams and pinned memory) or cpu.")
    ] = "sim",
    engine_home: EngineHome = "",
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Try a failing trace on releases of an engine, as few as possible: which one shows the bug first."""
    released = [name for name in known_engines() if kind_of(name).releases]
    asked = RunConfig(engine=engine or released[0], device=lanes, engine_home=engine_home)
    file = bundled(file)
    config = config_for(file, asked, context)
    if config.engine not in released:
        raise InputError(f"--engine is {config.engine}; it has no releases: {', '.join(released)} has")
    bisection = Bisection(_versions(versions, kind_of(config.engine).releases))
    trace = read_trace(file, not no_limits)
    check_trace(trace, config, str(file))
    tried = TriedReleases(trace, config, folder if folder is not None else Path.home() / CACHE)
    while (version := bisection.next()) is not None:
        entry = tried.entry(version)
        bisection.record(version, entry.status)
        if not as_json:
            print(f"{entry.version:<12} {entry.status:<8} {entry.seen}", flush=True)
    document = _document(file, bisection, tried)
    if as_json:
        print(document.model_dump_json(indent=2))
    else:
        print(f"\n{_conclusion(document)}")
    return document.exit_code


def _versions(text: str, releases: Sequence[str]) -> list[str]:
    """Return the releases of an option, by default those known, oldest first.

    Raises:
        InputError: one is no version, or they are not in order.
    """
    versions = text.split(",") if text else list(releases)
    for version in versions:
        if not VERSION.fullmatch(version):
            raise InputError(
                f"--versions: {version!r} is no version; wanted some like {releases[0]}, with commas between"
            )
    numbers = [[int(number) for number in re.findall(r"\d+", version)] for version in versions]
    if any(older >= newer for older, newer in pairwise(numbers)):
        raise InputError(f"--versions: {text}; wanted the oldest first, each once")
    return versions


class TriedReleases:
    """Verdicts on a trace by release; the first finding is the bug that is looked for."""

    def __init__(self, trace: Trace, config: RunConfig, folder: Path) -> None:
        self._trace, self._config, self._folder = trace, config, folder
        self.bug: Signature | None = None
        self.entries: dict[str, ReleaseEntry] = {}

    def entry(self, version: str) -> ReleaseEntry:
        """Install a release if it is not there, and judge the trace on it."""
        try:
            with kind_of(self._config.engine).release(version, self._folder, self._config) as config:
                status, seen = self._status(load_judge(WORKER).judge(self._trace, False, config))
        except DeviceError as error:
            status, seen = "skipped", escaped(str(error))
        self.entries[version] = ReleaseEntry(version=version, status=status, seen=seen)
        return self.entries[version]

    def _status(self, judgement: Judgement) -> tuple[Status, str]:
        verdict = judgement.verdict
        if isinstance(verdict, Agreed):
            return "good", "agreed"
        signature = signature_of(verdict, judgement.trace)
        if not is_finding(verdict) or signature is None:
            return "skipped", verdict.kind
        if self.bug is None:
            self.bug = signature
        if signature.matches(self.bug):
            return "bad", escaped(signature.bug)
        return "skipped", f"another finding: {escaped(signature.bug)}"


def _document(file: Path, bisection: Bisection, tried: TriedReleases) -> BisectDocument:
    statuses, change = set(bisection.known.values()), bisection.change()
    code = EXIT_FOUND if "bad" in statuses else EXIT_AGREED if "good" in statuses else EXIT_NOT_JUDGED
    ends: dict[str, str] = {}
    between: tuple[str, ...] = ()
    if change is not None:
        is_new = bisection.known[change.newer] == "bad"
        ends = dict(zip(("last_good", "first_bad") if is_new else ("last_bad", "first_good"), change, strict=True))
        low, high = map(bisection.versions.index, change)
        between = bisection.versions[low + 1 : high]
    return BisectDocument(
        specstorm=build(),
        exit_code=code,
        file=escaped(str(file)),
        bug=tried.bug.bug if tried.bug is not None else None,
        releases=tuple(tried.entries[version] for version in bisection.versions if version in tried.entries),
        first_bad=ends.get("first_bad"),
        last_good=ends.get("last_good"),
        last_bad=ends.get("last_bad"),
        first_good=ends.get("first_good"),
        between=between,
    )


def _conclusion(document: BisectDocument) -> str:
    left = f"; {', '.join(document.between)} between them cannot tell" if document.between else ""
    if document.first_bad is not None:
        return f"first bad: {document.first_bad}; last good: {document.last_good}{left}"
    if document.first_good is not None:
        return f"last bad: {document.last_bad}; first good: {document.first_good}{left}"
    seen = {entry.status for entry in document.releases}
    if "bad" in seen:
        oldest = next(entry.version for entry in document.releases if entry.status == "bad")
        return f"bad in every release that could tell, from {oldest} on"
    return "good in every release that could tell" if "good" in seen else "no release could tell"
