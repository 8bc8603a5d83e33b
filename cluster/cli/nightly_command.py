"""Command `nightly`: regressions, a hunt, a part of the faults, and a report."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.budget import Budget
from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import weightiest
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.measurement import Measurement, measured_code, measured_lines
from cluster.campaigns.nightly import (
    HUNT_END,
    NIGHTS,
    REPLAY_END,
    TRACES,
    TRACES_END,
    TRIALS,
    PartEntry,
    Regressions,
    division,
    night_number,
    part_of_the_faults,
)
from cluster.campaigns.planner import Planner
from cluster.campaigns.recurrence import Recurrence
from cluster.cli.campaign import code_of, open_campaign, open_store, write_results
from cluster.cli.finding_history import FindingHistory, known_folder
from cluster.cli.hunt_commands import Canary, carry_out, corpus_of, hunt_on_pool, settings_of
from cluster.cli.inputs import asked_config, config_of, ray_address, read_regressions
from cluster.cli.notification import Notify, check_notify, notify_of
from cluster.cli.options import (
    Corpora,
    Deadline,
    Engine,
    EngineHome,
    EnginePath,
    Fixes,
    Json,
    Known,
    OfKernels,
    OfRelease,
    OnDevice,
    Out,
    Ray,
    Workers,
)
from cluster.cli.report_command import PAGE, TIMELINES, write_report
from cluster.dispatch.pool import WorkerPool
from cluster.dispatch.session import Stop
from cluster.reports.edited import edited_lines
from cluster.reports.hunt_report import NightDocument, hunt_document, hunt_lines
from cluster.reports.page.campaign import NIGHT
from cluster.reports.report import progress_for
from cluster.reports.terminal import json_text, show, text_of
from cluster.statistics.fault_table import FaultValues, by_fault
from cluster.storage.hunts import CANARY
from cluster.storage.store import Store
from scenarios.generation.shards import SEED_MAX
from workers.edits.fix import ALL
from workers.targets.registry import target_kind
from workers.targets.target import SPECSTORM


class Night:
    """The planners of a nightly run (regressions, hunt, fault trials), and their durations."""

    def __init__(self, replayed: Regressions, planner: HuntPlanner, measurement: Measurement) -> None:
        self.replayed = replayed
        self.planner = planner
        self.measurement = measurement
        self.parts: dict[str, PartEntry] = {}

    def stages(self, stop: Stop, hours: float) -> Sequence[Callable[[WorkerPool], None]]:
        """Return the stages of a night as functions of a worker pool: regressions, hunt, trials.

        The time budget starts with this call.
        """
        seconds = 3600 * hours
        budget = Budget(seconds or None)
        suite, kept, store = self.replayed.suite, self.replayed.store, self.planner.store

        def replay_on(pool: WorkerPool) -> None:
            with closing(progress_for(sys.stderr, "regressions")) as progress, self._record_time("regressions", suite):
                drive(suite, pool, stop, progress, kept, lambda: budget.has_time(REPLAY_END))
            self.replayed.seconds = self.parts["regressions"].seconds

        def hunt_on(pool: WorkerPool) -> None:
            planner = self.planner
            planner.may_begin = lambda: hours > 0 and budget.has_time(TRACES_END)
            left = budget.left(TRACES_END)
            with self._record_time("hunt", planner):
                seconds = 0 if left is None else left
                hunt_on_pool(planner, store, pool, stop, seconds, None, lambda: budget.has_time(HUNT_END))

        def measure_on(pool: WorkerPool) -> None:
            measurement = self.measurement
            with (
                closing(progress_for(sys.stderr, "trials of faults")) as progress,
                self._record_time("faults", measurement),
            ):
                drive(measurement, pool, stop, progress, store, budget.has_time)

        return replay_on, hunt_on, measure_on

    @contextmanager
    def _record_time(self, name: str, planner: Planner) -> Iterator[None]:
        """Record the seconds and the completed units of the stage inside the `with` block."""
        begin, done = time.monotonic(), planner.counts().done
        try:
            yield
        finally:
            self.parts[name] = PartEntry(seconds=time.monotonic() - begin, done=planner.counts().done - done)


def nightly(
    context: typer.Context,
    *,
    hours: Annotated[
        float, typer.Option(min=0, help="Limit the night to this many hours (0: no limit and no hunt).")
    ] = 8,
    regressions: Annotated[Path, typer.Option(help="Replay these traces of known faults first.")] = Path("regressions"),
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=SEED_MAX, help="Generate traces from this seed (default: the date, as in 20261121)."),
    ] = None,
    nights: Annotated[int, typer.Option(min=1, help="Measure every fault once in this many nights.")] = NIGHTS,
    workers: Workers = None,
    ray: Ray = "auto",
    out: Out = None,
    canary: Canary = CANARY,
    corpus: Corpora = None,
    known: Known = None,
    notify: Notify = None,
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
    """Replay regressions, hunt for hours, measure some faults, and write three report files."""
    check_notify(notify)
    seed = int(time.strftime("%Y%m%d")) if seed is None else seed
    config = config_of(asked_config(context))
    settings = settings_of("mixed", seed, (), canary, config)
    # A regression is a trace with its fault switched on.
    known_bugs = read_regressions(regressions) if target_kind(engine).capabilities.faults else {}
    begun_from = corpus_of(corpus, out)
    history = FindingHistory(known_folder(known, engine, is_night=True))
    number = night_number(seed)
    tonight = part_of_the_faults(number, nights, config)
    address, stop = ray_address(ray, workers, config, context), Stop()
    show(division(hours, len(tonight)), to=sys.stderr)
    with _stores(out, seed, engine, context) as (store, kept):
        folder = store.folder
        replayed = Regressions(known_bugs, kept, config, night=number)
        planner = HuntPlanner(settings, store, None, begun_from)
        measurement = Measurement(tonight, TRIALS, TRACES, False, store, config)
        night = Night(replayed, planner, measurement)
        stages = night.stages(stop, hours)
        code = carry_out(stages, address, workers, deadline, stop, config, context=context, folder=folder)
        recurring = history.update(planner.bugs(), is_judged=bool(planner.hunt.totals.tally.traces))
        code, text, report = _report(night, code, recurring, history.lines, tonight)
    # Printed before it is written, so that a full disk does not lose the results.
    show(*(report if json else text).split("\n"))
    page = partial(write_report, [folder], folder, TIMELINES, history.folder)
    code = code_of(kept, code_of(store, code))
    code = write_results(folder, {"report.txt": text, NIGHT: report}, page, code, context)
    show(f"results: {folder}, page: {folder / PAGE}", to=sys.stderr if json else sys.stdout)
    notify_of(notify, report)
    return code


@contextmanager
def _stores(out: Path | None, seed: int, engine: str, context: typer.Context) -> Iterator[tuple[Store, Store]]:
    """Open, for a `with` block, the stores of a night's hunt, trials and regressions."""
    with (
        open_campaign(out, "nightly", context, seed, engine) as store,
        open_store(store.folder / "regressions", engine=engine) as kept,
    ):
        yield store, kept


def _report(
    night: Night, code: int, recurring: Recurrence, history: Sequence[str], tonight: Sequence[str]
) -> tuple[int, str, str]:
    """Return the exit code of a night, its report as text, and as JSON."""
    planner, measurement = night.planner, night.measurement
    trials = measurement.trials()
    lines = list(by_fault(trials))
    judged = measured_code(measurement, lines)
    code = weightiest(code, night.replayed.exit_code(), planner.exit_code(recurring.known), judged)
    edited = edited_lines(planner.hunt.settings.config, night.replayed.suite.ran() | planner.hunt.totals.ran)
    hunt_text = [*hunt_lines(planner.hunt, planner.store.folder), *history, *edited]
    text = text_of([*night.replayed.lines(), "", *hunt_text, "", *measured_lines(lines, tonight)])
    document = NightDocument(
        exit_code=code,
        regressions=night.replayed.entries(),
        hunt=hunt_document(planner.hunt, code, recurring.known),
        faults=FaultValues(faults=tuple(lines), trials=tuple(trials), lost=tuple(measurement.lost)),
        over_nights=recurring,
        parts=night.parts,
    )
    return code, text, json_text(document)
