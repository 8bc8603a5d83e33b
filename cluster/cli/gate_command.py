"""Command `gate`: test a change of an engine's sources by scenarios of the changed code."""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cluster.campaigns.budget import Budget
from cluster.campaigns.commits import Changes, RepositoryError
from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, weightiest
from cluster.campaigns.hunt.gate import SCENARIOS_END, SEED, TRACES_END, TRACES_MIN, Gate, changes_of, content_in
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.hunt.selection import edits_in, focus_of, selection_of
from cluster.campaigns.suite import Scenario, Suite
from cluster.cli.campaign import code_of, open_campaign, write_results
from cluster.cli.finding_history import FindingHistory, known_folder
from cluster.cli.hunt_commands import carry_out, hunt_on_pool, settings_of
from cluster.cli.inputs import (
    SCENARIOS,
    InputError,
    asked_config,
    check_engine,
    check_writable,
    config_of,
    ray_address,
    read_scenarios,
)
from cluster.cli.options import Deadline, EngineHome, EnginePath, Fixes, Json, Known, OfRelease, Out, Ray, Workers
from cluster.cli.report_command import PAGE, TIMELINES, write_report
from cluster.dispatch.inside import write_inside
from cluster.dispatch.job import build
from cluster.dispatch.pool import WorkerPool
from cluster.dispatch.session import Stop
from cluster.reports.annotations import annotations
from cluster.reports.documents import GateDocument
from cluster.reports.edited import edited_lines, never_run
from cluster.reports.hunt_report import hunt_document, hunt_lines
from cluster.reports.report import document, line_of, print_report, progress_for
from cluster.reports.terminal import json_text, show, show_workflow_command, text_of
from cluster.storage.corpus import NO_CORPUS, Corpus
from cluster.storage.hunts import CANARY
from workers.edits.fix import ALL
from workers.targets.executed import Executed, RecordError
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import RunConfig

REPORT, JUNIT = "gate.json", "junit.xml"
Base = Annotated[
    str,
    typer.Option(
        metavar="REV",
        help="Compare the sources with their merge base with this commit (default: origin/main or main; a "
        "folder without git is compared with the installed sources).",
    ),
]
Traces = Annotated[int, typer.Option("--traces", min=1, help="Judge at least this many traces.")]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML here in addition to the campaign.")
]


def gate(
    context: typer.Context,
    *,
    engine_path: EnginePath = "",
    minutes: Annotated[float, typer.Option(min=0.01, help="Limit scenarios and hunt to this many minutes.")] = 10,
    traces: Traces = TRACES_MIN,
    base: Base = "",
    workers: Workers = None,
    ray: Ray = "auto",
    out: Out = None,
    known: Known = None,
    deadline: Deadline = 300,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="Test this engine (default: the first with gate support).")
    ] = "",
    release: OfRelease = "",
    engine_home: EngineHome = "",
    fixes: Fixes = ALL,
    junit: Junit = None,
    github: Annotated[bool, typer.Option("--github", help="Print new findings as GitHub annotations.")] = False,
    json: Json = False,
) -> int:
    """Run the scenarios that execute changed code of an engine, then hunt with the same traces."""
    config = _config_of(asked_config(context))
    if junit is not None:
        check_writable(junit.parent)
    chosen = _select(config, base, traces)
    settings = settings_of("mixed", SEED, (), CANARY, config, chosen.focus)
    show(*chosen.lines, to=sys.stderr)
    # The selected scenarios are parents of three of twelve traces; all scenarios would be unrelated to the change.
    paths = [] if chosen.is_all else [SCENARIOS / each.name for each in chosen.scenarios]
    corpus = Corpus.read(paths) if paths else NO_CORPUS
    history = FindingHistory(known_folder(known, config.engine), is_night=False)
    address, stop = ray_address(ray, workers, config, context), Stop()
    with open_campaign(out, "gate", context, SEED, config.engine) as store:
        folder = store.folder
        planner = HuntPlanner(settings, store, None, corpus)
        gated = Gate(Suite(chosen.scenarios, store), planner, Budget(60 * minutes), traces)
        code = carry_out(_stages(gated, stop), address, workers, deadline, stop, config, context=context, folder=folder)
        recurring = history.update(gated.bugs())
        code = weightiest(code, gated.exit_code(recurring.known))
        report = json_text(_document(gated, chosen, recurring.known, code))
        text = _text(gated, folder, [*history.lines, *edited_lines(config, gated.ran())], recurring.known, code)
    code = code_of(store, code)
    show(*(report if json else text).split("\n"))
    new: list[str] = []

    def write() -> None:
        _, findings = write_report([folder], folder, TIMELINES, history.folder)
        new.extend(annotations(findings))
        if junit is not None:
            write_inside(junit.parent, junit.name, (folder / JUNIT).read_text(encoding="utf-8"))

    texts = {"report.txt": f"{text_of(chosen.lines)}\n\n{text}", REPORT: report}
    code = write_results(folder, texts, write, code, context)
    stream = sys.stderr if json else sys.stdout
    for line in new if github else ():
        show_workflow_command(line, stream)
    show(f"results: {folder}, page: {folder / PAGE}", to=stream)
    return code


def _config_of(asked: RunConfig) -> RunConfig:
    """Return the run configuration of an engine that `gate` supports; the first one by default.

    Raises:
        InputError: as `config_of`, or the engine has no record of executed functions, or no source tree is named.
    """
    having = [name for name in known_engines() if target_kind(name).executed is not None]
    engine = check_engine(asked.engine or having[0])
    if engine not in having:
        raise InputError(f"--engine is {engine}; it has no separate sources to test; allowed are {', '.join(having)}")
    if not asked.engine_path:
        raise InputError(f"--engine-path is missing; give the root of the sources of {target_kind(engine).package}")
    return config_of(asked.model_copy(update={"engine": engine}))


class GateSelection(NamedTuple):
    """What `gate` selects for the changed files: scenarios, and the focus of the hunt."""

    changes: Changes
    scenarios: Sequence[Scenario]
    is_all: bool
    focus: tuple[str, ...]
    lines: tuple[str, ...]


def _select(config: RunConfig, base: str, traces: int) -> GateSelection:
    """Return the scenarios and the focus of the hunt for the changed sources.

    Raises:
        InputError: there is nothing to compare the sources with, or no scenario is selected.
    """
    kind = target_kind(config.engine)
    tree, installed = Path(config.engine_path), kind.installed(config)
    assert kind.executed is not None, "the engine has a record"
    try:
        changes = changes_of(tree, kind.package, base, installed)
        record = Executed.read(kind.executed)
    except RepositoryError as error:
        option = f"--base is {base}" if base else f"--engine-path is {config.engine_path}"
        raise InputError(f"{option}: {error}; --base REV names a commit to compare it with") from error
    except RecordError as error:
        raise InputError(str(error)) from error
    is_recorded = kind.version(config.model_copy(update={"engine_path": ""})) == record.release
    recorded = partial(content_in, installed if is_recorded else None)
    edits = edits_in(changes.files, kind.package, changes.before, partial(content_in, tree), recorded)
    folders = [SCENARIOS / name for name in dict.fromkeys((kind.package, config.engine))]
    every, _ = read_scenarios([folder for folder in folders if folder.is_dir()], None, (), config)
    by_name = {Path(each.name).stem: each for each in every}
    selection = selection_of(edits, record, [*by_name], kind.smoke)
    if not selection.scenarios:
        raise InputError(f"engine {config.engine} supports none of its smoke scenarios: {', '.join(kind.smoke)}")
    count = len(changes.files)
    differ = f"{count} {'file differs' if count == 1 else 'files differ'} from {changes.against}"
    begun = "" if selection.is_all else ", a quarter of them variants of these scenarios"
    hunted = f"then a hunt for at least a third of the time, with at least {traces} traces{begun}"
    focus = focus_of(changes.files, kind.areas)
    focused = [f"the hunt generates more situations of {', '.join(focus)}"] if focus else []
    lines = tuple(f"gate: {line}" for line in (differ, *selection.lines, hunted, *focused))
    return GateSelection(changes, [by_name[name] for name in selection.scenarios], selection.is_all, focus, lines)


def _stages(gated: Gate, stop: Stop) -> Sequence[Callable[[WorkerPool], None]]:
    """Return the stages of a gate (scenarios, hunt) as functions that take a worker pool."""
    store, budget = gated.planner.store, gated.budget

    def scenarios_on(pool: WorkerPool) -> None:
        if gated.suite.missing:
            with closing(progress_for(sys.stderr)) as progress:
                drive(gated.suite, pool, stop, progress, store, partial(budget.has_time, SCENARIOS_END))

    def hunt_on(pool: WorkerPool) -> None:
        hunt_on_pool(gated.planner, store, pool, stop, budget.left(TRACES_END), None, budget.has_time)
        gated.planner.hunt.findings.keep_open()

    return scenarios_on, hunt_on


def _document(gated: Gate, chosen: GateSelection, known: tuple[str, ...], code: int) -> GateDocument:
    lines = [line_of(gated.suite, each, gated.planner.store.folder) for each in gated.suite.scenarios]
    return GateDocument(
        specstorm=build(),
        exit_code=code,
        against=chosen.changes.against,
        changed=chosen.changes.files,
        why="; ".join(line.removeprefix("gate: ") for line in chosen.lines),
        run=document(lines, code),
        hunt=hunt_document(gated.planner.hunt, code, known),
        known=known,
        cut_short=gated.cut_short(),
        judged=gated.judged(),
        never_ran=never_run(gated.planner.hunt.settings.config, gated.ran()),
    )


def _text(gated: Gate, folder: Path, remarks: Sequence[str], known: tuple[str, ...], code: int) -> str:
    """Return the report of a gate as text; its last line is the outcome."""
    stream = StringIO()
    print_report([line_of(gated.suite, each, folder) for each in gated.suite.scenarios], stream)
    new = len([bug for bug in gated.bugs() if bug not in known])
    what = gated.judged()
    left_out = f", {len(known)} known left out" if known else ""
    if code == EXIT_FOUND:
        outcome = f"FAILED: {new} new {'finding' if new == 1 else 'findings'} in {what}{left_out}"
    elif code == EXIT_AGREED:
        outcome = f"passed: nothing new in {what}{left_out}"
    else:
        outcome = f"not judged to the end: nothing new in {what}{left_out}"
    short = [f"gate: {gated.cut_short()}"] if gated.cut_short() else []
    return "\n".join([stream.getvalue(), *hunt_lines(gated.planner.hunt, folder), *remarks, *short, f"gate: {outcome}"])
