"""Command `bisect`: find the first release or commit of an engine that shows a bug."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.bisection import Bisection, Status
from cluster.campaigns.commits import COMMITS_MAX
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.cli.builds import Commits, Releases, commits_of, releases_of
from cluster.cli.inputs import bundled_path, check_trace, config_for, read_trace
from cluster.cli.options import EngineHome, Json, NoLimits, ReleasedEngine
from cluster.dispatch.job import WORKER, build, load_judge
from cluster.reports.documents import BisectDocument, ReleaseEntry
from cluster.reports.terminal import show, show_json
from scenarios.trace import Trace
from scenarios.visible import visible_line
from workers.edits.fix import RACES
from workers.record.verdict import Agreed, Judgement, is_finding
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import Device, DeviceError, RunConfig

Good = Annotated[
    str,
    typer.Option(metavar="REV", help=f"Start from this commit without the bug (default: up to {COMMITS_MAX} back)."),
]


def bisect(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Artefact or scenario file that fails.")],
    *,
    engine: ReleasedEngine = "",
    versions: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Try these releases, oldest first (default: the installable ones)."),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--environments", metavar="DIR", help="Install releases here, one folder each."),
    ] = None,
    repository: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Try commits of this git checkout of the engine, not releases."),
    ] = None,
    good: Good = "",
    bad: Annotated[str, typer.Option(metavar="REV", help="End at this commit with the bug (default: HEAD).")] = "",
    lanes: Annotated[
        Device, typer.Option("--device", help="Run on sim (simulated streams and pinned memory) or cpu.")
    ] = "sim",
    engine_home: EngineHome = "",
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Find the first release or commit of an engine that shows a failing trace's bug."""
    released = [name for name in known_engines() if target_kind(name).releases]
    asked = RunConfig(engine=engine or released[0], device=lanes, engine_home=engine_home, fixes=RACES)
    file = bundled_path(file)
    config = config_for(file, asked, context)
    if repository is None:
        builds: Releases | Commits = releases_of(config, versions, folder, good or bad)
    else:
        builds = commits_of(config, repository, (good, bad), bool(versions or folder))
    bisection = Bisection(builds.names)
    trace = read_trace(file, not no_limits)
    check_trace(trace, config, str(file))
    tried = BuildVerdicts(trace, builds)
    while (name := bisection.next()) is not None:
        entry = tried.entry(name)
        bisection.record(name, entry.status)
        if not as_json:
            subject = f"  ({entry.subject})" if entry.subject else ""
            show(f"{name:<12} {entry.status:<8} {entry.seen}{subject}")
    document = _document(file, bisection, tried)
    if as_json:
        show_json(document)
    else:
        show("", _conclusion(document, tried))
    return document.exit_code


class BuildVerdicts:
    """Verdicts on a trace by build of the engine; the first finding defines the bug."""

    def __init__(self, trace: Trace, builds: Releases | Commits) -> None:
        self._trace, self.builds = trace, builds
        self.bug: Signature | None = None
        self.entries: dict[str, ReleaseEntry] = {}

    def entry(self, name: str) -> ReleaseEntry:
        """Judge the trace on a build and return the entry."""
        status: Status
        try:
            with self.builds.running(name) as config:
                status, seen = self._status(load_judge(WORKER).judge(self._trace, False, config))
        except DeviceError as error:
            status, seen = "skipped", visible_line(str(error))
        if status == "skipped" and self.builds.is_declared_good(name):
            status, seen = "good", f"as given by --good; {seen}"
        subject = visible_line(self.builds.subjects.get(name, ""))
        self.entries[name] = ReleaseEntry(version=name, subject=subject, status=status, seen=seen)
        return self.entries[name]

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
            return "bad", visible_line(signature.bug)
        return "skipped", f"another finding: {visible_line(signature.bug)}"


def _document(file: Path, bisection: Bisection, tried: BuildVerdicts) -> BisectDocument:
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
        file=visible_line(str(file)),
        bug=tried.bug.bug if tried.bug is not None else None,
        releases=tuple(tried.entries[version] for version in bisection.versions if version in tried.entries),
        first_bad=ends.get("first_bad"),
        last_good=ends.get("last_good"),
        last_bad=ends.get("last_bad"),
        first_good=ends.get("first_good"),
        between=between,
    )


def _conclusion(document: BisectDocument, tried: BuildVerdicts) -> str:
    noun = tried.builds.noun
    left = f"; {', '.join(document.between)} between them inconclusive" if document.between else ""
    if document.first_bad is not None:
        return f"first bad: {_named(document.first_bad, tried)}; last good: {document.last_good}{left}"
    if document.first_good is not None:
        return f"last bad: {document.last_bad}; first good: {_named(document.first_good, tried)}{left}"
    seen = {entry.status for entry in document.releases}
    if "bad" in seen:
        oldest = next(entry.version for entry in document.releases if entry.status == "bad")
        return f"bad in every {noun} with a result, from {_named(oldest, tried)} on"
    return f"good in every {noun} with a result" if "good" in seen else f"no {noun} has a result"


def _named(name: str, tried: BuildVerdicts) -> str:
    """Return a build's name; for a commit with the first line of its message."""
    subject = tried.entries[name].subject
    return f"{name} ({subject})" if subject else name
