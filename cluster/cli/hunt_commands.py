"""Commands `hunt` (judge generated traces) and `shrink` (make a failing trace small)."""

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, get_args

import typer

from cluster.campaigns.budget import Budget
from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_NOT_JUDGED, exit_code, weightiest
from cluster.campaigns.hunt.jobs import HuntSettings, canary_of
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.hunt.seldom import keep_seldom_hit
from cluster.campaigns.triage import Triage
from cluster.cli.campaign import (
    CampaignFailure,
    cause,
    code_of,
    open_campaign,
    report_failure,
    resume_sentence,
)
from cluster.cli.finding_history import FindingHistory, known_folder
from cluster.cli.inputs import (
    InputError,
    asked_config,
    bundled_path,
    check_fault,
    check_faults,
    check_trace,
    check_writable,
    config_for,
    config_of,
    ray_address,
    read_trace,
)
from cluster.cli.options import (
    Corpora,
    Deadline,
    Engine,
    EngineHome,
    EnginePath,
    Fixes,
    Json,
    Known,
    NoLimits,
    OfKernels,
    OfRelease,
    OnDevice,
    Out,
    Ray,
    Workers,
)
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import typed_command
from cluster.dispatch.pool import WorkerPool
from cluster.dispatch.session import Stop, open_pool, open_pools
from cluster.reports.edited import edited_lines
from cluster.reports.hunt_report import HuntLine, hunt_document, hunt_lines
from cluster.reports.report import Line, ShrinkDocument, document, print_report, progress_for
from cluster.reports.terminal import say, show, show_json
from cluster.storage.artefact import artefact_text, write_artefact
from cluster.storage.corpus import NO_CORPUS, Corpus, kept_corpus
from cluster.storage.hunts import CANARY, FindingState
from cluster.storage.store import Store
from scenarios.generation.catalogue import unknown_focus
from scenarios.generation.shards import SEED_MAX, Profile
from workers.edits.fix import ALL, RACES
from workers.record.verdict import Judgement, is_finding
from workers.shrink.shrinker import LIMIT
from workers.targets.registry import target_kind
from workers.targets.target import SPECSTORM, RunConfig

MANY = 1_000_000
Canary = Annotated[
    str, typer.Option(metavar="ID", help="Check that the hunt finds this fault; report a blind hunt if not.")
]

Focus = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME|AREA", help="Generate these situations more often; repeatable, or with commas."),
]


def hunt(
    context: typer.Context,
    *,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after this many minutes (default: 1).")] = None,
    num_traces: Annotated[int | None, typer.Option("--traces", min=1, help="Stop after this many traces.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="Generate traces from this seed.")] = 0,
    workers: Workers = None,
    ray: Ray = "auto",
    fault: Annotated[list[str] | None, typer.Option(help="Switch on this fault; repeatable.")] = None,
    out: Out = None,
    profile: Annotated[str, typer.Option(help=f"Generate traces with {' or '.join(get_args(Profile))}.")] = "mixed",
    canary: Canary = CANARY,
    corpus: Corpora = None,
    focus: Focus = None,
    known: Known = None,
    deadline: Deadline = 300,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    release: OfRelease = "",
    engine_home: EngineHome = "",
    engine_path: EnginePath = "",
    kernels: OfKernels = "defined",
    fixes: Fixes = ALL,
    json: Json = False,
) -> int:
    """Generate traces, judge each under three schedules, and shrink every finding."""
    if minutes is not None and num_traces is not None:
        raise InputError("--minutes and --traces exclude each other; give one of them")
    if num_traces is None and minutes is None:
        minutes = 1
    config = config_of(asked_config(context))
    settings = settings_of(profile, seed, tuple(fault or ()), canary, config, focus or ())
    begun_from = corpus_of(corpus, out)
    history = FindingHistory(known_folder(known, engine), is_night=False)
    address, stop = ray_address(ray, workers, config, context), Stop()
    with open_campaign(out, "hunt", context, seed, engine) as store:
        folder = store.folder
        planner = HuntPlanner(settings, store, num_traces, begun_from)
        seconds = None if minutes is None else 60 * minutes

        budget = Budget(seconds or None)

        def work(pool: WorkerPool) -> None:
            planner.may_begin = lambda: seconds != 0 and budget.has_time()
            hunt_on_pool(planner, store, pool, stop, seconds, num_traces)

        code = carry_out((work,), address, workers, deadline, stop, config, context=context, folder=folder)
        recurring = history.update(planner.bugs())
        code = weightiest(code, planner.exit_code(recurring.known))
        edited = edited_lines(config, planner.hunt.totals.ran)
        lines = [*hunt_lines(planner.hunt, folder), *history.lines]
    code = code_of(store, code)
    document = hunt_document(planner.hunt, code, recurring.known)
    if json:
        show_json(document)
        show(*edited, to=sys.stderr)
    else:
        show(*lines, *edited)
    show(f"results: {folder}", to=sys.stderr if json else sys.stdout)
    return code


def settings_of(
    profile: str, seed: int, faults: tuple[str, ...], canary: str, config: RunConfig, focus: Sequence[str] = ()
) -> HuntSettings:
    """Return the settings of a hunt, with existing faults and situations.

    Raises:
        InputError: a profile, a fault or a name of `focus` is unknown.
    """
    names = tuple(dict.fromkeys(name.strip() for each in focus for name in each.split(",")))
    if message := unknown_focus(names, target_kind(config.engine).capabilities_under(config)):
        raise InputError(f"--focus is {message}")
    if profile not in get_args(Profile):
        raise InputError(f"--profile is {profile}; allowed are {', '.join(get_args(Profile))}")
    canary = canary_of(config) if canary == CANARY else canary
    planted = (*faults, canary) if canary else faults
    for fault in planted:
        check_fault(fault)
    check_faults(planted, config, "hunt")
    values = {"profile": profile, "seed": seed, "faults": faults, "canary": canary, "config": config, "focus": names}
    return HuntSettings.model_validate(values)


def corpus_of(paths: Sequence[Path] | None, out: Path | None) -> Corpus:
    """Return the corpus that options name, else that of the resumed campaign."""
    if not paths:
        return kept_corpus(out) if out is not None else NO_CORPUS
    corpus = Corpus.read([bundled_path(path) for path in paths])
    if corpus.num_left_out:
        what = "left out because no engine runs them without their faults"
        say(f"--corpus: {corpus.num_left_out} traces {what}")
    return corpus


def hunt_on_pool(
    planner: HuntPlanner,
    store: Store,
    pool: WorkerPool,
    stop: Stop,
    seconds: float | None,
    num_traces: int | None,
    has_time: Callable[[], bool] = lambda: True,
) -> None:
    """Hunt on an open pool until the limit is reached and all findings are closed.

    Traces that hit rare probes are kept. With `has_time`, findings may stay open; resuming the campaign continues them.
    """
    with closing(HuntLine(sys.stderr, seconds, num_traces, news=planner.take_news)) as progress:
        drive(planner, pool, stop, progress, store, has_time)
    keep_seldom_hit(planner.hunt, store.folder)


def carry_out(
    stages: Sequence[Callable[[WorkerPool], None]],
    address: str | None,
    workers: int | None,
    deadline: float,
    stop: Stop,
    config: RunConfig,
    *,
    context: typer.Context,
    folder: Path,
) -> int:
    """Run the stages of a command one after another, each with a new worker pool.

    Return 0, or the exit code of an interruption.
    """
    try:
        with open_pools(address, workers, MANY, deadline, stop, config) as pools:
            for stage in stages:
                if stop.signum is None:
                    with pools() as pool:
                        stage(pool)
    except CampaignFailure as error:
        report_failure(error, folder, context)
        return EXIT_NOT_JUDGED
    if stop.signum is None:
        return EXIT_AGREED
    show(f"interrupted by {signal.Signals(stop.signum).name}; {resume_sentence(context, folder)}", to=sys.stderr)
    return 128 + stop.signum


def shrink(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Artefact or scenario file that fails.")],
    *,
    limit: Annotated[int, typer.Option(min=1, help="Try at most this many smaller traces.")] = LIMIT,
    workers: Workers = None,
    ray: Ray = "off",
    out: Annotated[
        Path | None, typer.Option(help="Write the artefact here (default: next to FILE; if bundled: in .).")
    ] = None,
    deadline: Deadline = 300,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    release: OfRelease = "",
    engine_home: EngineHome = "",
    engine_path: EnginePath = "",
    kernels: OfKernels = "defined",
    fixes: Fixes = RACES,
    no_limits: NoLimits = False,
    json: Json = False,
) -> int:
    """Remove events and settings from a failing trace while it still fails in the same variable."""
    # Nothing is written next to files of the distribution.
    folder = out if out is not None else file.parent if file == bundled_path(file) else Path()
    file = bundled_path(file)
    config = config_for(file, asked_config(context), context)
    trace = read_trace(file, not no_limits)
    check_trace(trace, config, str(file))
    check_writable(folder)
    triage = Triage(FindingState.unseen(trace.explicit()), limit, config)
    stop, address = Stop(), ray_address(ray, workers, config, context)
    try:
        with (
            closing(progress_for(sys.stderr, "candidates")) as progress,
            open_pool(address, workers, MANY, deadline, stop, config) as pool,
        ):
            drive(triage, pool, stop, progress)
        code = EXIT_AGREED if stop.signum is None else 128 + stop.signum
    except PoolError as error:
        say(str(error))
        code = EXIT_NOT_JUDGED
    if (judgement := triage.state.smallest) is None:
        say(f"{file}: was not judged")
        return code or EXIT_NOT_JUDGED
    line, remarks = _write_shrunk_trace(file, folder, triage, judgement, config)
    code = code or exit_code([judgement.verdict])
    if json:
        shrinking = triage.state.shrinking
        shrunk = ShrinkDocument(
            **dict(document([line], code)),
            events_before=triage.state.size,
            events=len(judgement.trace.events),
            checks=shrinking.spent if shrinking is not None else 0,
            complete=not triage.is_open,
        )
        show_json(shrunk)
        show(*remarks, to=sys.stderr)
    else:
        print_report([line], sys.stdout, remarks)
    return code


def _write_shrunk_trace(
    file: Path, folder: Path, triage: Triage, judgement: Judgement, config: RunConfig
) -> tuple[Line, list[str]]:
    """Write the artefact of a shrunk trace; return its line of the report, and remarks."""
    if not is_finding(judgement.verdict):
        return Line(str(file), judgement), ["nothing to shrink: the trace does not fail"]
    shrinking = triage.state.shrinking
    spent = shrinking.spent if shrinking is not None else 0
    remarks = [f"{triage.state.size} events, shrunk to {len(judgement.trace.events)} in {spent} checks"]
    try:
        path = write_artefact(folder, judgement, str(file), config)
    except OSError as error:
        # The disk may have filled up meanwhile; the shrunk trace is then printed.
        show(*artefact_text(judgement, str(file), config).split("\n"), to=sys.stderr)
        return Line(str(file), judgement), [*remarks, f"{cause(error, folder)}; the trace is on stderr"]
    if triage.is_open:
        remarks.append(f"stopped before the end; continue with: {typed_command('shrink', path, config)}")
    return Line(str(file), judgement, str(path), typed_command("replay", path, config)), remarks
