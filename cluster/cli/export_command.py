"""Command `export`: write a finding as a test of its engine, and as the text of an issue."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.inputs import (
    InputError,
    bundled_path,
    check_engine,
    check_trace,
    check_writable,
    config_for,
    read_trace,
    require_engine,
)
from cluster.cli.options import EngineHome, EnginePath, NoLimits, OfRelease, ReleasedEngine
from cluster.dispatch.inside import write_inside
from cluster.dispatch.job import WORKER, build, load_judge
from cluster.reports.finding_page import head_of, page_of, versions_of
from cluster.reports.issue import VERSIONS, EvidenceDocument, Issue, issue_text, sections_of, title_of
from cluster.reports.terminal import json_text, show
from cluster.storage.artefact import portable
from cluster.storage.errors import first_problem
from scenarios import codec
from scenarios.input_file import CAMPAIGN_BYTES_MAX, read_file
from scenarios.scenario_file import RunOn
from scenarios.strict_json import read_json
from scenarios.trace import Trace
from workers.edits.edit import EditError
from workers.edits.fix import RACES, finding_of, fixes_of
from workers.edits.patch import patch
from workers.record.verdict import is_finding
from workers.targets.exported import ExportError, Finding
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import Device, RunConfig


def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Artefact or scenario file that fails.")],
    *,
    engine: ReleasedEngine = "",
    lanes: Annotated[
        Device, typer.Option("--device", help="Run on sim (simulated streams and pinned memory) or cpu.")
    ] = "cpu",
    release: OfRelease = "",
    engine_home: EngineHome = "",
    engine_path: EnginePath = "",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Write the files here.")] = Path("exported"),
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use the evidence of an earlier export instead of a run."),
    ] = None,
    no_limits: NoLimits = False,
) -> int:
    """Write a finding as a test that needs only its engine, and as the text of an issue."""
    file = bundled_path(file)
    released = [name for name in known_engines() if target_kind(name).releases]
    asked = RunConfig(
        engine=engine or released[0],
        device=lanes,
        release=release,
        engine_home=engine_home,
        engine_path=engine_path,
        fixes=RACES,
    )
    config = config_for(file, asked, context)
    trace = read_trace(file, not no_limits)
    check_writable(out)
    seen = _read(evidence) if evidence is not None else _run(file, trace, config)
    if not is_finding(seen.verdict):
        there = f"engine {seen.run_on.engine} on {seen.run_on.device}: {seen.verdict.kind}"
        raise InputError(f"{file}: {there}; export needs a finding")
    name = (found := finding_of(file)) or file.stem
    page, change = (
        (page_of(found), _patch(found, config))
        if found
        else (_sibling_text(file, ".md"), _sibling_text(file, ".patch"))
    )
    title, source = title_of(page, seen.verdict), portable(str(file))
    sections = {**sections_of(page), **({VERSIONS: versions_of(head_of(found))} if found else {})}
    finding = Finding(name, title, source, trace.explicit(), seen.verdict, seen.run_on.version)
    try:
        test = target_kind(check_engine(seen.run_on.engine)).exported(finding)
    except ExportError as error:
        raise InputError(f"{file}: no test shows it: {error}") from error
    written = out / f"test_{name}.py"
    texts = {
        written: test.text,
        out / f"{name}.md": issue_text(Issue(title, seen, sections, written.name, test, change)),
        out / f"{name}.json": f"{json_text(seen)}\n",
        **({out / f"{name}.patch": change} if change else {}),
    }
    for path, text in texts.items():
        write_inside(path.parent, path.name, text)
        show(str(path))
    return EXIT_AGREED


def _run(file: Path, trace: Trace, config: RunConfig) -> EvidenceDocument:
    """Run a trace and return its verdict as evidence."""
    kind = target_kind(config.engine)
    if not kind.exports:
        exporting = ", ".join(name for name in known_engines() if target_kind(name).exports)
        raise InputError(f"{file}: engine {config.engine}: export supports findings of {exporting}")
    check_trace(trace, config, str(file))
    require_engine(config)
    verdict = load_judge(WORKER).judge(trace, False, config).verdict
    return EvidenceDocument(
        specstorm=build(),
        exit_code=EXIT_AGREED,
        run_on=RunOn(
            engine=config.engine, device=config.device, version=config.engine_version, sources=config.engine_digest
        ),
        verdict=verdict,
    )


def _read(path: Path) -> EvidenceDocument:
    try:
        return EvidenceDocument.model_validate(read_json(read_file(path, CAMPAIGN_BYTES_MAX)))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected a file written by `specstorm export`") from error
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}; expected a file written by `specstorm export`") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}; expected a file written by `specstorm export`") from error


def _patch(finding: str, config: RunConfig) -> str:
    """Return the patch of a finding's fix for the installed engine; "" without a fix."""
    kind = target_kind(config.engine)
    fix, root = fixes_of(kind.package).get(finding), kind.installed(config)
    if fix is None or root is None:
        return ""
    try:
        return patch(fix.edits, root)
    except EditError as error:
        show(f"warning: no patch: the fix of {finding}: {error}", to=sys.stderr)
        return ""


def _sibling_text(file: Path, suffix: str) -> str:
    """Return the text of the file with the trace's name and another suffix; "" without one."""
    path = file.with_suffix(suffix)
    try:
        return read_file(path, codec.BYTES_MAX).decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; expected text") from error
