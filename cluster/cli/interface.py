"""Python interface: judge one trace, run scenarios, hunt. Use it as `import specstorm`.

Wrong input raises ValueError with the message of the command line; a failing trace returns a verdict. `config` selects
the engine and the device. Without `out`, a campaign is kept in a temporary folder and deleted with its artefacts. Call
it in the main thread, which receives signals.
"""

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from cluster.campaigns.budget import Budget
from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_BAD_INPUT, weightiest
from cluster.campaigns.hunt.jobs import HuntSettings, canary_of
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.campaigns.suite import Scenario, Suite
from cluster.cli.inputs import (
    check_engine,
    check_fault,
    check_faults,
    check_trace,
    ray_address,
    read_scenarios,
    read_trace,
)
from cluster.dispatch.job import WORKER, load_judge
from cluster.dispatch.session import Stop, open_pool
from cluster.reports.hunt_report import HuntDocument, hunt_document
from cluster.reports.report import Line, RunDocument, document
from cluster.storage.campaign import Result
from cluster.storage.store import Store
from scenarios.trace import Trace
from workers.record.verdict import Judgement
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, RunConfig

__all__ = ["check", "hunt", "run"]

DEADLINE_SECONDS = 300.0


def check(
    trace: Trace | Path | str,
    *,
    faults: Sequence[str] = (),
    sweep: bool = False,
    config: RunConfig = DEFAULT_CONFIG,
) -> Judgement:
    """Judge one trace or trace file in this process; with `sweep`, under many schedules.

    Raises:
        ValueError: the file is not a scenario, or the engine cannot run it.
    """
    check_engine(config.engine)
    source = "the trace" if isinstance(trace, Trace) else str(trace)
    given = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    added = tuple(check_fault(fault) for fault in faults)
    given = given.model_copy(update={"faults": tuple(dict.fromkeys((*given.faults, *added)))})
    check_trace(given, config, source)
    target_kind(config.engine).require(config)
    return load_judge(WORKER).judge(given, sweep, config)


def run(
    *paths: Path | str,
    seed: int | None = None,
    faults: Sequence[str] = (),
    keyword: str | None = None,
    ray: str = "off",
    workers: int | None = None,
    out: Path | None = None,
    time_limit: float | None = None,
    config: RunConfig = DEFAULT_CONFIG,
) -> RunDocument:
    """Run scenarios, each under many schedules; return their judgements and the exit code.

    Raises:
        ValueError: a path is not a scenario, or Ray does not answer at its address.
    """
    check_engine(config.engine)
    scenarios, num_refused = read_scenarios([Path(path) for path in paths], seed, faults, config, keyword=keyword)
    address, budget, stop = ray_address(ray, workers, config), Budget(time_limit), Stop()
    with _folder(out) as folder, Store(Path(folder), seed, config.engine) as store:
        suite = Suite(scenarios, store)
        if suite.missing:
            with open_pool(address, workers, len(suite.missing), DEADLINE_SECONDS, stop, config) as pool:
                drive(suite, pool, stop, None, store, budget.has_time)
        code = weightiest(suite.exit_code(), EXIT_BAD_INPUT if num_refused else EXIT_AGREED)
        return document([_line(scenario, suite.results.get(scenario.job.key)) for scenario in scenarios], code)


def _line(scenario: Scenario, result: Result | None) -> Line:
    return Line(scenario.name, None) if result is None else Line(scenario.name, result.judgement, result.artefact)


def hunt(
    *,
    traces: int,
    seed: int = 0,
    faults: Sequence[str] = (),
    ray: str = "off",
    workers: int | None = None,
    out: Path | None = None,
    config: RunConfig = DEFAULT_CONFIG,
) -> HuntDocument:
    """Judge generated traces, shrink every finding, and return the results.

    Raises:
        ValueError: a fault or an engine is unknown, or Ray does not answer at its address.
    """
    check_engine(config.engine)
    canary = canary_of(config)
    check_faults([check_fault(fault) for fault in (*faults, *((canary,) if canary else ()))], config, "hunt")
    settings = HuntSettings(seed=seed, faults=tuple(faults), canary=canary, config=config)
    address, stop = ray_address(ray, workers, config), Stop()
    with _folder(out) as folder, Store(Path(folder), seed, config.engine) as store:
        planner = HuntPlanner(settings, store, traces)
        with open_pool(address, workers, traces, DEADLINE_SECONDS, stop, config) as pool:
            drive(planner, pool, stop, None, store)
        return hunt_document(planner.hunt, planner.exit_code())


def _folder(out: Path | None) -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="specstorm-") if out is None else nullcontext(str(out))
