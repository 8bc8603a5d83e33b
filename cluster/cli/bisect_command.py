"""Command `bisect`: which release of an engine shows a bug first."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.bisection import Bisection, Status
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.cli.inputs import InputError, check_trace, config_of, read_trace
from cluster.cli.options import Engine, EngineHome, Json, NoLimits
from cluster.dispatch.job import WORKER, build, load_judge
from cluster.reports.documents import BisectDocument, ReleaseEntry
from scenarios.strict_yaml import escaped
from scenarios.trace import Trace
from workers.record.verdict import Agreed, Judgement, is_finding
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.target import VLLM, Device, DeviceError, RunConfig
from workers.targets.vllm.installation import HOME, ROOT, keeper_of
from workers.targets.vllm.releases import RELEASES, VERSION, InstallError, environment_of
from workers.targets.vllm.target import FIRST_RUNNER

# Folder of installed releases below the user's home.
CACHE = Path(".cache", "specstorm", "engines")


def bisect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artefact, or any scenario file that fails.")],
    *,
    engine: Engine = VLLM,
    versions: Annotated[str, typer.Option(metavar="A,B,...", help="Releases to choose from, oldest first.")] = ",".join(
        RELEASES
    ),
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
    config = config_of(RunConfig(engine=engine, device=lanes, engine_home=engine_home))
    if engine != VLLM:
        raise InputError(f"--engine is {engine}; it has no releases: {VLLM} has")
    bisection = Bisection(_versions(versions))
    trace = read_trace(file, not no_limits)
    check_trace(trace, config, str(file))
    home = Path(engine_home).resolve() if engine_home else ROOT / HOME
    tried = TriedReleases(trace, config, home, folder if folder is not None else Path.home() / CACHE)
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


def _versions(text: str) -> list[str]:
    """Return the releases of an option, oldest first.

    Raises:
        InputError: one is no version, or they are not in order.
    """
    versions = text.split(",")
    for version in versions:
        if not VERSION.fullmatch(version):
            raise InputError(
                f"--versions: {version!r} is no version; wanted some like {RELEASES[0]}, with commas between"
            )
    numbers = [[int(number) for number in re.findall(r"\d+", version)] for version in versions]
    if any(older >= newer for older, newer in pairwise(numbers)):
        raise InputError(f"--versions: {text}; wanted the oldest first, each once")
    return versions


class TriedReleases:
    """Verdicts on a trace by release; the first finding is the bug that is looked for."""

    def __init__(self, trace: Trace, config: RunConfig, home: Path, folder: Path) -> None:
        self._trace, self._config, self._home, self._folder = trace, config, home, folder
        self.bug: Signature | None = None
        self.entries: dict[str, ReleaseEntry] = {}

    def entry(self, version: str) -> ReleaseEntry:
        """Install a release if it is not there, and judge the trace on it."""
        try:
            environment = environment_of(version, self._folder, self._home)
            config = self._config.model_copy(update={"engine_home": str(environment)})
            try:
                judgement = load_judge(WORKER).judge(self._trace, False, config)
            finally:
                keeper_of(config.engine_home, "", config.device, FIRST_RUNNER).stop()
            status, seen = self._status(judgement)
        except (InstallError, DeviceError) as error:
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
