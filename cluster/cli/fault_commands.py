"""Commands `faults list`, `faults show` and `faults measure`."""

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_NOT_JUDGED
from cluster.campaigns.measurement import Measurement, measured_code
from cluster.cli.campaign import CampaignFailure, open_campaign, report_failure, resume_sentence, write_results
from cluster.cli.inputs import InputError, check_engine, check_fault, check_faults, ray_address
from cluster.cli.options import Deadline, Engine, Json, OnDevice, Out, Ray, Workers
from cluster.dispatch.session import Stop, open_pool
from cluster.reports.documents import faults_document
from cluster.reports.report import progress_for
from cluster.reports.terminal import json_text, show, show_json, text_of
from cluster.statistics.fault_table import Line, by_fault, measure_document, table
from cluster.statistics.figures import draw_kill_matrix, draw_survival
from workers.faults.registry import FAULTS
from workers.run.trials import Trial
from workers.targets.devices import faults_on
from workers.targets.registry import target_kind
from workers.targets.target import SPECSTORM, RunConfig


def measure(
    context: typer.Context,
    faults: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Faults (default: all).")] = None,
    *,
    trials: Annotated[int, typer.Option(min=1, help="Run this many trials per fault, on different traces.")] = 10,
    traces: Annotated[int, typer.Option(min=1, help="Stop a trial after this many traces.")] = 200,
    workers: Workers = None,
    ray: Ray = "auto",
    out: Out = None,
    no_baseline: Annotated[bool, typer.Option("--no-baseline", help="Skip comparing outputs (faster).")] = False,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Draw survival.svg and kill_matrix.svg; needs matplotlib.")
    ] = False,
    deadline: Deadline = 600,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    json: Json = False,
) -> int:
    """Measure how many traces it takes to find each fault, and whether outputs reveal it."""
    if pictures and find_spec("matplotlib") is None:
        raise InputError("--pictures needs matplotlib; pip install matplotlib")
    config = RunConfig(engine=check_engine(engine), device=device)
    if not target_kind(engine).capabilities.faults:
        raise InputError(f"faults measure: engine {engine} has no faults to switch on")
    names = faults_on(config) if not faults else [check_fault(fault) for fault in dict.fromkeys(faults)]
    check_faults(names, config, "faults measure")
    address = ray_address(ray, workers, config, context)
    stop = Stop()
    broken = False
    with open_campaign(out, "faults", context, engine=engine) as store:
        folder = store.folder
        measurement = Measurement(names, trials, traces, not no_baseline, store, config)
        try:
            with (
                closing(progress_for(sys.stderr, "trials")) as progress,
                open_pool(address, workers, len(names) * trials, deadline, stop, config) as pool,
            ):
                drive(measurement, pool, stop, progress, store)
        except CampaignFailure as error:
            report_failure(error, folder, context)
            broken = True
    broken = broken or not store.is_kept
    num_elsewhere = 0 if faults else len(FAULTS) - len(names)
    elsewhere = f"not measured: {num_elsewhere} faults that do not exist on --device {device}"
    taken = measurement.trials()
    lines = list(by_fault(taken))
    code = EXIT_NOT_JUDGED if broken else measured_code(measurement, lines)
    code = code if stop.signum is None else 128 + stop.signum
    report = json_text(measure_document(lines, taken, measurement.lost, code))
    text = text_of([*table(lines), *([elsewhere] if num_elsewhere else []), *measurement.lost])
    # Printed before it is written, so that a full disk does not lose the measurement.
    show(*(report if json else text).split("\n"))
    if stop.signum is not None:
        show(f"interrupted; {resume_sentence(context, folder)}", to=sys.stderr)
    draw = partial(_draw, folder, taken if pictures else (), lines)
    code = write_results(folder, {"faults.txt": text, "faults.json": report}, draw, code, context)
    show(f"results: {folder}", to=sys.stderr if json else sys.stdout)
    return code


def _draw(folder: Path, trials: Sequence[Trial], lines: Sequence[Line]) -> None:
    if trials:
        draw_survival(trials, folder / "survival.svg")
        draw_kill_matrix(lines, folder / "kill_matrix.svg")


def list_faults(
    plane: Annotated[str | None, typer.Option(help="List only faults of this plane.")] = None, json: Json = False
) -> int:
    """List faults: id, plane (state category), symptom."""
    planes = sorted({fault.plane for fault in FAULTS.values()})
    if plane is not None and plane not in planes:
        raise InputError(f"--plane is {plane}; allowed are {', '.join(planes)}")
    names = sorted(name for name, fault in FAULTS.items() if plane in (None, fault.plane))
    if json:
        show_json(faults_document(names))
        return EXIT_AGREED
    width = max(map(len, names))
    for name in names:
        fault = FAULTS[name]
        show(f"{name:<{width}}  {fault.plane:<10}  {fault.symptom}")
    return EXIT_AGREED


def show_fault(fault: Annotated[str, typer.Argument(metavar="ID")], json: Json = False) -> int:
    """Show one fault: its source, symptom, trigger and requirements."""
    document = faults_document([check_fault(fault)])
    if json:
        show_json(document)
        return EXIT_AGREED
    (entry,) = document.faults
    for name in ("id", "source", "symptom", "trigger", "plane"):
        show(f"{name + ':':<10}{getattr(entry, name)}")
    requires = ", ".join(f"{key} = {value}" for key, value in entry.requires.items())
    show(f"requires: {requires or 'nothing'}", f"devices:  {', '.join(entry.devices)}")
    return EXIT_AGREED
