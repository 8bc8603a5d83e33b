"""Command `export`: a finding of vLLM as a test that needs vLLM and pytest alone, and as the text of an issue."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.inputs import (
    InputError,
    bundled,
    check_trace,
    check_writable,
    config_for,
    read_trace,
    require_engine,
)
from cluster.cli.options import EngineHome, EnginePath, NoLimits
from cluster.dispatch.job import WORKER, build, load_judge
from cluster.reports.issue import EvidenceDocument, Issue, issue_text, sections_of, title_of
from cluster.storage.artefact import portable, write_atomically
from cluster.storage.errors import first_problem
from scenarios.strict_yaml import escaped
from scenarios.trace import Trace
from workers.record.verdict import is_finding
from workers.targets.target import VLLM, VLLM_V1, Device, RunConfig
from workers.targets.vllm import sources
from workers.targets.vllm.export.finding import ExportError, Finding
from workers.targets.vllm.export.test_file import exported_test
from workers.targets.vllm.installation import FIRST_RUNNER, SECOND_RUNNER, home_of

_ENGINES = (VLLM_V1, VLLM)


def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artefact, or any scenario file that fails.")],
    *,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help=f"The engine that shows it: {', '.join(_ENGINES)}.")
    ] = VLLM_V1,
    device: Annotated[Device, typer.Option(help="What it shows it on.")] = "cpu",
    engine_home: EngineHome = "",
    engine_path: EnginePath = "",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("exported"),
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What an earlier export found: FILE.json that it wrote. Nothing is run."),
    ] = None,
    no_limits: NoLimits = False,
) -> int:
    """Write a finding of vLLM as a test file for pytest and vLLM alone, and as the text of an issue."""
    file = bundled(file)
    asked = RunConfig(engine=engine, device=device, engine_home=engine_home, engine_path=engine_path)
    config = config_for(file, asked, context)
    if config.engine not in _ENGINES:
        raise InputError(f"{file}: engine {config.engine}: findings of {' and '.join(_ENGINES)} are exported")
    trace = read_trace(file, not no_limits)
    check_writable(out)
    seen = _read(evidence) if evidence is not None else _run(file, trace, config)
    if not is_finding(seen.verdict):
        there = f"engine {seen.engine} on {seen.device}: {seen.verdict.kind}"
        raise InputError(f"{file}: {there}; only a finding is exported")
    name = file.stem
    page, patch = _beside(file, ".md"), _beside(file, ".patch")
    title = title_of(page, seen.verdict)
    runner = SECOND_RUNNER if seen.engine == VLLM else FIRST_RUNNER
    source = portable(str(file))
    finding = Finding(name, title, source, trace.explicit(), seen.verdict, seen.version, runner.name)
    try:
        test = exported_test(finding)
    except ExportError as error:
        raise InputError(f"{file}: no test on a CPU shows it: {error}") from error
    written = out / f"test_{name}.py"
    issue = Issue(title, seen, sections_of(page), written.name, test.body, patch)
    texts = {
        written: test.text,
        out / f"{name}.md": issue_text(issue),
        out / f"{name}.json": f"{seen.model_dump_json(indent=2)}\n",
    }
    for path, text in texts.items():
        write_atomically(path, text)
        print(escaped(str(path)))
    return EXIT_AGREED


def _run(file: Path, trace: Trace, config: RunConfig) -> EvidenceDocument:
    """Run a trace and return what is found."""
    check_trace(trace, config, str(file))
    require_engine(config)
    verdict = load_judge(WORKER).judge(trace, False, config).verdict
    version = sources.version(config.engine_path, home_of(config))
    return EvidenceDocument(
        specstorm=build(), exit_code=0, engine=config.engine, device=config.device, version=version, verdict=verdict
    )


def _read(path: Path) -> EvidenceDocument:
    try:
        return EvidenceDocument.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}; wanted what `specstorm export` writes") from error


def _beside(file: Path, suffix: str) -> str:
    """Return the text of a file of the same name with another suffix, nothing if there is none."""
    path = file.with_suffix(suffix)
    return path.read_text(encoding="utf-8") if path.is_file() else ""
