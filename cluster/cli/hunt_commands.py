"""Commands `hunt`, `nightly` and `shrink`."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer

from cluster.campaigns.driver import QUIET, drive
from cluster.campaigns.exit_codes import exit_code
from cluster.campaigns.findings import FindingState, Pursuit, Shrink
from cluster.campaigns.hunt import Hunt, keep_seldom_hit
from cluster.campaigns.hunter import CANARY, HuntSettings
from cluster.campaigns.measurement import Measurement, measured_code
from cluster.campaigns.nightly import NIGHTS, TRACES, TRIALS, Regressions, part_of_the_faults
from cluster.cli.inputs import (
    InputError,
    check_engine,
    check_fault,
    check_faults,
    check_trace,
    ray_address,
    read_regressions,
    read_trace,
)
from cluster.cli.options import Corpora, Deadline, Engine, Json, OnDevice, Out, Ray, Workers
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import command
from cluster.dispatch.pool import WorkerPool
from cluster.dispatch.session import Stop, open_pools
from cluster.reports.hunt_report import HuntLine, NightDocument, hunt_document, hunt_lines
from cluster.reports.report import Line, ShrinkDocument, document, print_report
from cluster.statistics.fault_table import by_fault, fault_values, table
from cluster.storage.artefact import write_artefact, write_atomically
from cluster.storage.corpus import NO_CORPUS, Corpus, kept_corpus
from cluster.storage.store import Store, new_campaign_folder
from scenarios.shards import SEED_MAX, Profile
from workers.record.verdict import Judgement, is_finding
from workers.shrink.shrinker import LIMIT
from workers.targets.target import SPECSTORM, RunConfig

MANY = 1_000_000
Canary = Annotated[str, typer.Option(metavar="ID", help="A fault that must be found, or the hunt says it is blind.")]


def hunt(
    minutes: Annotated[float | None, typer.Option(min=0, help="Begin traces for so long. Default: 1.")] = None,
    num_traces: Annotated[int | None, typer.Option("--traces", min=1, help="Judge so many traces.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="Other traces.")] = 0,
    workers: Workers = None,
    ray: Ray = "auto",
    fault: Annotated[list[str] | None, typer.Option(help="Switch a fault on; may be repeated.")] = None,
    out: Out = None,
    profile: Annotated[str, typer.Option(help=f"Who generates: {' or '.join(get_args(Profile))}.")] = "labelled",
    canary: Canary = CANARY,
    corpus: Corpora = None,
    deadline: Deadline = 300,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    json: Json = False,
) -> int:
    """Generate traces, judge each under three schedules, shrink every finding."""
    if minutes is not None and num_traces is not None:
        raise InputError("--minutes and --traces were both given; one of them says when to stop")
    if num_traces is None and minutes is None:
        minutes = 1
    config = RunConfig(engine=check_engine(engine), device=device)
    settings = _settings(profile, seed, tuple(fault or ()), canary, config)
    known = _corpus(corpus, out)
    address = ray_address(ray, workers, config)
    folder = out if out is not None else new_campaign_folder(Path("campaigns"), "hunt")
    stop = Stop()
    with Store(folder) as store:
        hunting = _hunt_of(settings, store, num_traces, known)
        seconds = None if minutes is None else 60 * minutes

        def work(pool: WorkerPool) -> None:
            _hunt(hunting, store, pool, stop, seconds, num_traces)

        code = _carry_out((work,), address, workers, deadline, stop, config) or hunting.exit_code()
        text = "\n".join(hunt_lines(hunting.hunter, folder))
    print(hunt_document(hunting.hunter, code).model_dump_json(indent=2) if json else text)
    print(f"results: {folder}", file=sys.stderr if json else sys.stdout)
    return code


def nightly(
    hours: Annotated[float, typer.Option(min=0, help="Begin traces for so long, after the regressions.")] = 8,
    regressions: Annotated[Path, typer.Option(help="Folder of traces of known faults, replayed first.")] = Path(
        "scenarios/regressions"
    ),
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEED_MAX, help="Other traces. Default: the date, as in 20261121.")
    ] = None,
    nights: Annotated[int, typer.Option(min=1, help="Nights in which every fault is measured once.")] = NIGHTS,
    workers: Workers = None,
    ray: Ray = "auto",
    out: Out = None,
    canary: Canary = CANARY,
    corpus: Corpora = None,
    deadline: Deadline = 300,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    json: Json = False,
) -> int:
    """Replay the regressions, hunt for hours, measure a part of the faults, write report.txt and report.json."""
    known_bugs = read_regressions(regressions)
    seed = int(time.strftime("%Y%m%d")) if seed is None else seed
    config = RunConfig(engine=check_engine(engine), device=device)
    settings = _settings("labelled", seed, (), canary, config)
    known = _corpus(corpus, out)
    tonight = part_of_the_faults(seed, nights, config)
    address = ray_address(ray, workers, config)
    folder = out if out is not None else new_campaign_folder(Path("campaigns"), "nightly")
    stop = Stop()
    with Store(folder) as store, Store(folder / "regressions") as kept:
        replayed = Regressions(known_bugs, kept, config)
        hunting = _hunt_of(settings, store, None, known)

        def hunt_on(pool: WorkerPool) -> None:
            _hunt(hunting, store, pool, stop, 3600 * hours, None)

        measurement = Measurement(tonight, TRIALS, TRACES, False, store, config)
        works = (
            lambda pool: drive(replayed.suite, pool, stop, QUIET, kept),
            hunt_on,
            lambda pool: drive(measurement, pool, stop, QUIET, store),
        )
        code = _carry_out(works, address, workers, deadline, stop, config)
        taken = measurement.trials()
        lines = list(by_fault(taken))
        codes = (replayed.exit_code(), hunting.exit_code(), measured_code(measurement, lines, len(tonight)))
        # Findings weigh more than gaps.
        code = code or max(codes, key=(0, 3, 1).index)
        text = "\n".join([*replayed.lines(), "", *hunt_lines(hunting.hunter, folder), "", *table(lines)])
        values = hunt_document(hunting.hunter, code)
        measured = fault_values(lines, taken, measurement.lost)
        night = NightDocument(exit_code=code, regressions=replayed.entries(), hunt=values, faults=measured)
        report = night.model_dump_json(indent=2)
    write_atomically(folder / "report.txt", text + "\n")
    write_atomically(folder / "report.json", report + "\n")
    print(report if json else text)
    print(f"results: {folder}", file=sys.stderr if json else sys.stdout)
    return code


def _settings(profile: str, seed: int, faults: tuple[str, ...], canary: str, config: RunConfig) -> HuntSettings:
    if profile not in get_args(Profile):
        raise InputError(f"--profile is {profile}; allowed are {', '.join(get_args(Profile))}")
    for fault in (*faults, canary):
        check_fault(fault)
    check_faults((*faults, canary), config, "hunt")
    values = {"profile": profile, "seed": seed, "faults": faults, "canary": canary, "config": config}
    return HuntSettings.model_validate(values)


def _corpus(paths: Sequence[Path] | None, out: Path | None) -> Corpus:
    """Return the corpus that was named, or that of the campaign which is resumed."""
    if not paths:
        return kept_corpus(out) if out is not None else NO_CORPUS
    corpus = Corpus.read(paths)
    if corpus.num_left_out:
        what = "left out because no engine runs them without their faults"
        print(f"specstorm: --corpus: {corpus.num_left_out} traces {what}", file=sys.stderr)
    return corpus


def _hunt_of(settings: HuntSettings, store: Store, num_traces: int | None, corpus: Corpus) -> Hunt:
    return Hunt(settings.model_copy(update={"corpus": corpus.digest}), store, num_traces, corpus)


def _hunt(
    hunting: Hunt, store: Store, pool: WorkerPool, stop: Stop, seconds: float | None, num_traces: int | None
) -> None:
    """Hunt on an open pool until the time is over or all traces are judged, and every finding is closed.

    Traces that hit what few hit are kept.
    """
    end = None if seconds is None else time.monotonic() + seconds
    hunting.may_begin = lambda: end is None or time.monotonic() < end
    progress = HuntLine(sys.stderr, seconds, num_traces)
    try:
        drive(hunting, pool, stop, progress, store)
    finally:
        progress.close()
    keep_seldom_hit(hunting.hunter, store.folder)


def _carry_out(
    works: Sequence[Callable[[WorkerPool], None]],
    address: str | None,
    workers: int | None,
    deadline: float,
    stop: Stop,
    config: RunConfig,
) -> int:
    """Do one work after another, each on a pool of its own; return 0, or the exit code of what kept it from ending."""
    try:
        with open_pools(address, workers, MANY, deadline, stop, config) as pools:
            for work in works:
                if stop.signum is None:
                    with pools() as pool:
                        work(pool)
    except PoolError as error:
        print(f"specstorm: {error}", file=sys.stderr)
        return 3
    return 0 if stop.signum is None else 128 + stop.signum


def shrink(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An artefact, or any scenario file that fails.")],
    limit: Annotated[int, typer.Option(min=1, help="Smaller traces to try at most.")] = LIMIT,
    workers: Workers = None,
    ray: Ray = "off",
    out: Annotated[Path | None, typer.Option(help="Folder for the artefact. Default: where FILE is.")] = None,
    deadline: Deadline = 300,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    json: Json = False,
) -> int:
    """Make a failing trace small: events, schedule and specification, as long as it fails in the same variable."""
    config = RunConfig(engine=check_engine(engine), device=device)
    trace = read_trace(file)
    check_trace(trace, config, str(file))
    folder = out if out is not None else file.parent
    stop = Stop()
    pursuit = Pursuit(FindingState.unseen(trace.explicit()), limit, config)
    address = ray_address(ray, workers, config)
    code = _carry_out((lambda pool: drive(Shrink(pursuit), pool, stop),), address, workers, deadline, stop, config)
    judgement = pursuit.smallest()
    if judgement is None:
        print(f"specstorm: {file}: was not judged", file=sys.stderr)
        return code or 3
    line, remarks = _shrunk(file, folder, pursuit, judgement, config)
    code = code or exit_code([judgement.verdict])
    if json:
        print(_shrink_document(line, code, pursuit).model_dump_json(indent=2))
        print("\n".join(remarks), file=sys.stderr)
    else:
        print_report([line], sys.stdout, remarks)
    return code


def _shrunk(
    file: Path, folder: Path, pursuit: Pursuit, judgement: Judgement, config: RunConfig
) -> tuple[Line, list[str]]:
    """Write the artefact of a trace that fails, and return what is to be said about it."""
    if not is_finding(judgement.verdict):
        return Line(str(file), judgement), ["nothing to shrink: the trace does not fail"]
    path = write_artefact(folder, judgement, str(file), config)
    shrinking = pursuit.state.shrinking
    spent = shrinking.spent if shrinking is not None else 0
    remarks = [f"{pursuit.state.size} events, shrunk to {len(judgement.trace.events)} in {spent} checks"]
    if pursuit.is_open:
        remarks.append(f"stopped before the end; go on with: {command('shrink', path, config)}")
    return Line(str(file), judgement, str(path), command("replay", path, config)), remarks


def _shrink_document(line: Line, code: int, pursuit: Pursuit) -> ShrinkDocument:
    assert line.judgement is not None, "a trace without a judgement is not reported"
    shrinking = pursuit.state.shrinking
    return ShrinkDocument(
        **dict(document([line], code)),
        events_before=pursuit.state.size,
        events=len(line.judgement.trace.events),
        checks=shrinking.spent if shrinking is not None else 0,
        complete=not pursuit.is_open,
    )
