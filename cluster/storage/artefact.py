"""Artefact: a file with the trace of a finding, which `specstorm replay` runs.

A comment describes the finding.
"""

import os
from hashlib import blake2b
from pathlib import Path

from cluster.dispatch.inside import write_inside
from cluster.dispatch.job import build, command
from cluster.dispatch.origin import ROOT
from scenarios import codec
from scenarios.codec import comment
from scenarios.input_file import CAMPAIGN_BYTES_MAX, read_file
from scenarios.scenario_file import RunOn
from scenarios.visible import is_visible
from workers.record.verdict import Judgement, plane
from workers.record.words import finding_lines, outcome_lines, outcome_text, schedule_name
from workers.targets.target import DEFAULT_CONFIG, RunConfig

SCHEMA = Path("scenarios", "scenario.schema.json")


def artefact_name(judgement: Judgement) -> str:
    """Return the file name of an artefact: `<plane>-<digest of the trace>.yaml`."""
    digest = blake2b(codec.dumps(judgement.trace).encode(), digest_size=4).hexdigest()
    return f"{plane(judgement.verdict)}-{digest}.yaml"


def portable(name: str) -> str:
    """Return a path in a form that does not depend on this host.

    It is relative to the working directory, or else the bare name.
    """
    path = Path(name)
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def artefact_text(judgement: Judgement, scenario: str, config: RunConfig = DEFAULT_CONFIG) -> str:
    """Return a finding's trace as YAML, with failure and replay command as a comment."""
    lines = [f"{judgement.verdict.kind}: found by {portable(scenario)}", *finding_lines(judgement.verdict)]
    lines += outcome_lines(judgement.verdict, judgement.outcomes)
    if len({outcome.agrees for outcome in judgement.outcomes}) > 1:
        lines += [f"under {schedule_name(each.schedule)}: {outcome_text(each)}" for each in judgement.outcomes]
    lines.append(f"replay: {command('replay', artefact_name(judgement), RunConfig.of(config.run_on()))}")
    return comment(lines) + codec.dumps(judgement.trace, found_on(config))


def found_on(config: RunConfig) -> RunOn:
    """Return the run configuration that an artefact stores.

    It has the engine, its version or source digest, the device and the options.
    """
    seen = config.run_on()
    return seen if config.engine != DEFAULT_CONFIG.engine else seen.model_copy(update={"version": build()})


def schema_line(folder: Path) -> str:
    """Return a comment with the schema of scenario files for editors.

    An empty string outside of a checkout.
    """
    schema, here = ROOT / SCHEMA, folder.resolve()
    if not (schema.is_file() and here.is_relative_to(ROOT)):
        return ""
    return f"# yaml-language-server: $schema={Path(os.path.relpath(schema, here)).as_posix()}\n"


def write_artefact(
    folder: Path, judgement: Judgement, scenario: str, config: RunConfig = DEFAULT_CONFIG, part: str = "."
) -> Path:
    """Write the artefact of a finding into a part of a folder and return its path.

    Repeated calls change nothing.
    """
    text = schema_line(folder / part) + artefact_text(judgement, scenario, config)
    return write_inside(folder, f"{part}/{artefact_name(judgement)}", text)


def is_artefact_of(path: Path, judgement: Judgement, config: RunConfig = DEFAULT_CONFIG) -> bool:
    """Whether a file can be replayed and has a finding's trace; comments do not matter."""
    try:
        # Only \n ends a line: any other line separator was inserted later.
        lines = read_file(path, CAMPAIGN_BYTES_MAX).decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return False
    trace = [line for line in lines if not line.startswith("#")]
    is_readable = all(map(is_visible, lines))
    return is_readable and "\n".join(trace) + "\n" == codec.dumps(judgement.trace, found_on(config))


def put_aside(path: Path) -> Path:
    """Rename a damaged file to a free name; return the new path."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    os.replace(path, aside)
    return aside
