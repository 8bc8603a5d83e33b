"""Commands `validate`, `probes list` and `schema`, which run nothing."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_BAD_INPUT
from cluster.cli.inputs import InputError, bundled_path, check_engine, check_trace, name_of, read_trace
from cluster.cli.options import Engine, Json, NoLimits, OnDevice
from cluster.dispatch.job import build
from cluster.reports.documents import (
    DOCUMENTS,
    SCENARIO,
    ValidateDocument,
    ValidEntry,
    document_schema,
    probes_document,
)
from cluster.reports.terminal import show, show_json
from cluster.storage.artefact import portable
from scenarios import codec
from scenarios.probes import PROBES
from scenarios.visible import visible_line
from workers.targets.target import SPECSTORM, RunConfig

probes_app = typer.Typer(no_args_is_help=True, help="Probes: event counters of an engine that a scenario can expect.")


def validate(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Scenario files or folders of them.")],
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    no_limits: NoLimits = False,
    json: Json = False,
) -> int:
    """Read scenario files and print what is wrong with each; run nothing."""
    config = RunConfig(engine=check_engine(engine), device=device)
    entries = []
    for path in codec.find_scenarios([bundled_path(path) for path in paths]):
        problem = _problem(path, config, not no_limits)
        entries.append(ValidEntry(file=portable(name_of(path)), problem=problem))
    wrong = [entry for entry in entries if entry.problem is not None]
    code = EXIT_BAD_INPUT if wrong else EXIT_AGREED
    if json:
        show_json(ValidateDocument(specstorm=build(), exit_code=code, files=tuple(entries)))
        return code
    show(*(entry.problem for entry in wrong if entry.problem is not None))
    show(f"{len(entries)} {'scenario' if len(entries) == 1 else 'scenarios'}: {len(entries) - len(wrong)} valid")
    return code


def _problem(path: Path, config: RunConfig, is_limited: bool) -> str | None:
    try:
        check_trace(read_trace(path, is_limited), config, str(path))
    except (codec.ScenarioError, InputError) as error:
        return visible_line(str(error))
    return None


@probes_app.command("list", epilog="Example: specstorm probes list")
def list_probes(json: Json = False) -> int:
    """List probes: id and meaning."""
    if json:
        show_json(probes_document())
        return EXIT_AGREED
    width = max(map(len, PROBES))
    show(*(f"{name:<{width}}  {meaning}" for name, meaning in PROBES.items()))
    return EXIT_AGREED


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show this document (default: list the names).")
    ] = None,
) -> int:
    """Print the JSON Schema of a scenario file, or of a command's --json document."""
    names = (SCENARIO, *DOCUMENTS)
    if name is None:
        show(*names)
    elif name in names:
        show_json(dumps(document_schema(name), indent=2, ensure_ascii=False))
    else:
        raise InputError(f"unknown document {name!r}; known are {', '.join(names)}")
    return EXIT_AGREED
