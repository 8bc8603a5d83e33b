"""The command that measures how soon each fault is found."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.driver import drive
from cluster.campaigns.measurement import Measurement, measured_code
from cluster.campaigns.planner import EXIT_NOT_JUDGED
from cluster.cli.inputs import InputError, check_engine, check_fault, check_faults, ray_address
from cluster.cli.options import Deadline, Engine, Json, OnDevice, Out, Ray, Workers
from cluster.dispatch.host import PoolError
from cluster.dispatch.session import Stop, open_pool
from cluster.reports.report import progress_for
from cluster.statistics.fault_table import by_fault, document, elsewhere_line, table, write_documents
from cluster.statistics.figures import draw_kill_matrix, draw_survival
from cluster.storage.store import Store, new_campaign_folder
from workers.faults.registry import FAULTS
from workers.targets.devices import faults_on
from workers.targets.target import SPECSTORM, RunConfig


def measure(
    faults: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Default: every fault.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each fault, each with traces of its own.")] = 10,
    traces: Annotated[int, typer.Option(min=1, help="Traces after which a trial is given up.")] = 200,
    workers: Workers = None,
    ray: Ray = "auto",
    out: Out = None,
    no_baseline: Annotated[bool, typer.Option("--no-baseline", help="Do not compare outputs; faster.")] = False,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Draw survival.svg and kill_matrix.svg; needs matplotlib.")
    ] = False,
    deadline: Deadline = 600,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    json: Json = False,
) -> int:
    """Measure how many generated traces it takes to find each fault, and what comparing outputs finds on the same."""
    if pictures and find_spec("matplotlib") is None:
        raise InputError("--pictures needs matplotlib; pip install 'specstorm[figures]'")
    config = RunConfig(engine=check_engine(engine), device=device)
    names = faults_on(config) if not faults else [check_fault(fault) for fault in dict.fromkeys(faults)]
    check_faults(names, config, "faults measure")
    address = ray_address(ray, workers, config)
    folder = out if out is not None else new_campaign_folder(Path("campaigns"), "faults")
    stop = Stop()
    broken = False
    with Store(folder) as store:
        measurement = Measurement(names, trials, traces, not no_baseline, store, config)
        try:
            with open_pool(address, workers, len(names) * trials, deadline, stop, config) as pool:
                drive(measurement, pool, stop, progress_for(sys.stderr), store)
        except PoolError as error:
            print(f"specstorm: {error}", file=sys.stderr)
            broken = True
    left_out = [] if faults or len(names) == len(FAULTS) else [elsewhere_line(len(FAULTS) - len(names), config)]
    taken = measurement.trials()
    lines = list(by_fault(taken))
    code = EXIT_NOT_JUDGED if broken else measured_code(measurement, lines, len(names))
    code = code if stop.signum is None else 128 + stop.signum
    report = document(lines, taken, measurement.lost, code)
    text = "\n".join([*table(lines), *left_out, *measurement.lost])
    write_documents(folder, text, report)
    if pictures and lines:
        draw_survival(taken, folder / "survival.svg")
        draw_kill_matrix(lines, folder / "kill_matrix.svg")
    print(report if json else text)
    print(f"results: {folder}", file=sys.stderr if json else sys.stdout)
    return code
