"""Commands `run` and `replay`, and the table of all commands; each returns its exit code."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer

from cluster.campaigns.budget import Budget, duration_text
from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_BAD_INPUT, EXIT_FOUND, EXIT_NOT_JUDGED, exit_code, weightiest
from cluster.campaigns.suite import Scenario, Suite
from cluster.cli.bisect_command import bisect
from cluster.cli.campaign import CampaignFailure, code_of, open_campaign, report_failure, resume_sentence
from cluster.cli.doctor_command import doctor
from cluster.cli.examples import EXAMPLES
from cluster.cli.export_command import export
from cluster.cli.fault_commands import list_faults, measure, show_fault
from cluster.cli.gate_command import gate
from cluster.cli.hunt_commands import hunt, shrink
from cluster.cli.inputs import (
    InputError,
    asked_config,
    bundled_path,
    campaign_stem,
    check_release,
    check_trace,
    config_for,
    config_of,
    name_of,
    ray_address,
    read_scenarios,
    read_trace,
    require_engine,
)
from cluster.cli.listing_commands import probes_app, schema, validate
from cluster.cli.merge_command import merge
from cluster.cli.nightly_command import nightly
from cluster.cli.options import (
    Deadline,
    Engine,
    EngineHome,
    EnginePath,
    Fixes,
    Json,
    NoLimits,
    OfKernels,
    OfRelease,
    OnDevice,
    Out,
    Ray,
    Workers,
)
from cluster.cli.report_command import explain, report
from cluster.cli.situations_command import situations_app
from cluster.cli.submit_command import attach, extract, submit
from cluster.cli.triage_command import triage
from cluster.cli.watch_command import watch
from cluster.dispatch.coordinator import Record
from cluster.dispatch.host import ReachError
from cluster.dispatch.job import WORKER, AnyJob, build, load_judge
from cluster.dispatch.job_server import ServerError
from cluster.dispatch.pool import WorkerPool
from cluster.dispatch.session import Stop, open_pool
from cluster.reports.edited import edited_lines
from cluster.reports.gpu_report import print_confirmed
from cluster.reports.report import BarProgress, Line, LineProgress, document, line_of, print_report, progress_for
from cluster.reports.terminal import show, show_json
from cluster.storage.errors import CampaignError
from cluster.storage.store import Store
from scenarios.codec import ScenarioError
from scenarios.features import switched_off
from scenarios.spec import INTEGER_MAX
from scenarios.trace import Trace, problems
from workers.edits.fix import RACES
from workers.record.verdict import Vacuous
from workers.run.known_bugs import with_needed_fixes
from workers.run.widening import DelayedRuns, delay_source_lines
from workers.targets.registry import target_kind
from workers.targets.target import SPECSTORM, DeviceError, RunConfig

UserError = (InputError, ScenarioError, CampaignError, DeviceError, ReachError, ServerError)

HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(pretty_exceptions_enable=False, no_args_is_help=True, context_settings=HELP)
faults_app = typer.Typer(no_args_is_help=True, help="Historical bugs that can be switched on.")


def _print_version(wanted: bool) -> None:
    if wanted:
        show(f"specstorm {build()}")
        raise typer.Exit()


@app.callback()
def specstorm(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Run speculative-decoding engines through hostile, replayable traces and judge every step.

    Exit codes: 0 all agreed; 1 findings; 2 bad input or usage; 3 could not judge; 130 and 143 by signal.
    """


class WatchedSuite(Suite):
    """A suite that times its scenarios, and decides when to stop.

    `stream` gets a line per result; None prints nothing.
    """

    def __init__(self, scenarios: Sequence[Scenario], store: Store, stream: TextIO | None, maxfail: int | None) -> None:
        super().__init__(scenarios, store)
        self._stream = stream
        self._maxfail = maxfail
        self._names = {scenario.job.key: scenario.name for scenario in scenarios}
        self._begun: dict[str, float] = {}
        self.seconds: dict[str, float] = {}

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        super().begin(job, attempt, slot)
        self._begun[job.key] = time.monotonic()

    def take(self, record: Record) -> None:
        super().take(record)
        name = self._names[record.job]
        if record.job in self._begun:
            self.seconds[name] = time.monotonic() - self._begun[record.job]
        if self._stream is not None:
            verdict = self.results[record.job].judgement.verdict
            show(f"{verdict.kind:<9} {name}  {self.seconds.get(name, 0.0):.2f} s", to=self._stream)

    def may_continue(self, budget: Budget) -> bool:
        """Whether there is time left, and fewer findings than `maxfail`."""
        return budget.has_time() and (self._maxfail is None or self.counts().findings < self._maxfail)

    def slowest(self, count: int) -> list[str]:
        """Return lines with the slowest scenarios, slowest first."""
        ranked = sorted(self.seconds.items(), key=lambda item: (-item[1], item[0]))[:count]
        return [f"{seconds:8.2f} s  {name}" for name, seconds in ranked]


def run(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Scenario files or folders of them.")],
    *,
    workers: Workers = None,
    ray: Ray = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, max=INTEGER_MAX, help="Replace the seed of every scenario.")
    ] = None,
    fault: Annotated[list[str] | None, typer.Option(help="Switch on this fault; repeatable.")] = None,
    out: Out = None,
    keyword: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPRESSION", help="Select scenarios by name, such as 'abort and not drop'."),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the scenarios and run none.")] = False,
    exit_first: Annotated[bool, typer.Option("-x", "--exitfirst", help="Stop at the first finding.")] = False,
    maxfail: Annotated[int | None, typer.Option(min=1, help="Stop after this many findings.")] = None,
    time_limit: Annotated[float | None, typer.Option(min=0.001, help="Stop the run after this many seconds.")] = None,
    durations: Annotated[int, typer.Option(min=0, help="List this many of the slowest scenarios.")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only disagreements and the summary.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print a line per result as it arrives.")] = False,
    deadline: Deadline = 300,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    release: OfRelease = "",
    engine_home: EngineHome = "",
    engine_path: EnginePath = "",
    kernels: OfKernels = "defined",
    fixes: Fixes = RACES,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Run scenarios under many schedules each and judge them."""
    config = config_of(asked_config(context))
    scenarios, num_refused = read_scenarios(paths, seed, fault or (), config, not no_limits, keyword)
    least = EXIT_BAD_INPUT if num_refused else EXIT_AGREED
    if list_only:
        show(*(scenario.name for scenario in scenarios))
        return least
    _warn({scenario.name: scenario.job.trace for scenario in scenarios})
    stop, budget, address = Stop(), Budget(time_limit), ray_address(ray, workers, config, context)
    pool = partial(open_pool, address, workers, deadline=deadline, stop=stop, config=config)
    with open_campaign(out, campaign_stem(paths), context, seed, engine) as store:
        suite = WatchedSuite(scenarios, store, sys.stderr if verbose else None, 1 if exit_first else maxfail)
        progress = LineProgress(sys.stderr) if verbose else progress_for(sys.stderr)
        code = _carry_out(suite, progress, store, pool, stop=stop, budget=budget, context=context)
        lines = [line_of(suite, scenario, store.folder) for scenario in scenarios]
        remarks = [*_remarks(suite, lines, fault or (), num_refused), *suite.slowest(durations)]
        if code == EXIT_AGREED:
            code, twice = suite.exit_code(), store.contradictions()
            remarks += [f"two attempts of job {job} had different results: see table late" for job in twice]
        code = weightiest(code, least)
        remarks += _last_remarks(suite, budget, stop, resume_sentence(context, store.folder), store.folder)
        if as_json:
            show_json(document(lines, code))
            show(*remarks, to=sys.stderr)
        else:
            print_report(lines, sys.stdout, remarks, quiet)
    return code_of(store, code)


def _last_remarks(suite: Suite, budget: Budget, stop: Stop, how: str, folder: Path) -> list[str]:
    """Return why a run ended early and how to continue, if it did, and the folder of its results."""
    return [*_cut_short(suite, budget, stop, how), f"results: {folder}"]


def _cut_short(suite: Suite, budget: Budget, stop: Stop, how: str) -> list[str]:
    """Return why a run ended before all scenarios were judged, and how to continue; else ""."""
    if stop.signum is not None:
        return [f"interrupted by {signal.Signals(stop.signum).name}; {how}"]
    if not suite.missing:
        return []
    if not budget.has_time():
        return [f"the time limit of {duration_text(budget.seconds or 0)} was reached; {how}"]
    findings = suite.counts().findings
    # Without findings, the reason has been printed already.
    return [f"stopped after {findings} findings; {how}"] if findings else []


def _warn(traces: Mapping[str, Trace]) -> None:
    """Warn about each requested feature of a trace that has no effect: where and why."""
    named: dict[str, list[str]] = {}
    for name, trace in traces.items():
        for rule in switched_off(trace.spec, trace.faults):
            named.setdefault(rule.message(trace.spec), []).append(name)
    for message, names in named.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        show(f"warning: {names[0]}{more}: {message}", to=sys.stderr)


def _carry_out(
    suite: WatchedSuite,
    progress: LineProgress | BarProgress,
    store: Store,
    open_pool: Callable[[int], AbstractContextManager[WorkerPool]],
    *,
    stop: Stop,
    budget: Budget,
    context: typer.Context,
) -> int:
    """Judge the scenarios that have no result yet; return 0, or the exit code of an interruption."""
    try:
        if not suite.missing:
            return EXIT_AGREED
        with open_pool(len(suite.missing)) as pool:
            drive(suite, pool, stop, progress, store, lambda: suite.may_continue(budget))
    except CampaignFailure as error:
        report_failure(error, store.folder, context)
        return exit_code(suite.verdicts()) or EXIT_NOT_JUDGED
    finally:
        progress.close()
    return 0 if stop.signum is None else 128 + stop.signum


def _remarks(suite: Suite, lines: Sequence[Line], faults: Sequence[str], num_refused: int) -> list[str]:
    remarks = []
    if num_refused:
        remarks = [
            f"skipped: {num_refused} {'scenario' if num_refused == 1 else 'scenarios'} that the engine cannot run"
        ]
    if suite.kept:
        remarks.append(f"kept from an earlier run: {suite.kept} of {len(lines)} results")
    vacuous = {line.scenario: line.verdict for line in lines if isinstance(line.verdict, Vacuous)}
    for fault in faults:
        missed = [name for name, verdict in vacuous.items() if not verdict.reached(fault)]
        if missed:
            remarks.append(f"fault {fault} was never reached in: {', '.join(missed)}")
    return [*remarks, *edited_lines(suite.scenarios[0].job.config, suite.ran())]


def replay(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Artefact or scenario file.")],
    *,
    no_faults: Annotated[bool, typer.Option("--no-faults", help="Switch off all faults of the file.")] = False,
    engine: Engine = SPECSTORM,
    device: OnDevice = "sim",
    release: OfRelease = "",
    engine_home: EngineHome = "",
    engine_path: EnginePath = "",
    kernels: OfKernels = "defined",
    fixes: Fixes = RACES,
    confirm: Annotated[
        Literal["cuda"] | None,
        typer.Option(help="Widen the window of each race on a GPU, and report whether the race does harm."),
    ] = None,
    times: Annotated[int, typer.Option(min=1, help="With --confirm: run each way this often.")] = 5,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Run one trace under its file's schedule, in this process.

    A finding is run again under fixed schedules, to show which of them reproduce it.
    """
    file = bundled_path(file)
    config = config_for(file, asked_config(context), context)
    trace = read_trace(file, not no_limits)
    if no_faults:
        trace = trace.model_copy(update={"faults": ()})
        for problem in problems(trace):
            raise InputError(f"{file}: without its faults it cannot run: {problem.message}")
    name = name_of(file)
    _warn({name: trace})
    check_trace(trace, config, str(file))
    require_engine(config)
    if confirm is not None:
        return EXIT_FOUND if print_confirmed(confirm_races(trace, config, times, str(file)), as_json) else EXIT_AGREED
    line = Line(name, with_needed_fixes(load_judge(WORKER).judge(trace, False, config), config))
    code = exit_code([line.verdict])
    if as_json:
        show_json(document([line], code))
    else:
        print_report([line], sys.stdout, _schedules_text(line))
    return code


def _schedules_text(line: Line) -> list[str]:
    """Return a sentence that says which schedules ran besides the file's own.

    Empty if none did.
    """
    others = line.judgement.schedules - 1 if line.judgement is not None else 0
    if others < 1:
        return []
    fixed = f"{others} fixed {'schedule' if others == 1 else 'schedules'}"
    return [f"schedules: the file's own, then {fixed} to show whether the finding depends on the schedule"]


def _add(group: str, *commands: Callable[..., int], owner: typer.Typer = app, **settings: Any) -> None:
    """Add commands to a group of the help, each with the example of its help text."""
    for command in commands:
        names = {measure: "faults measure", list_faults: "faults list", show_fault: "faults show"}
        name = names.get(command, command.__name__)
        example = f"Example: specstorm {EXAMPLES[name]}"
        owner.command(name.rpartition(" ")[2], rich_help_panel=group, epilog=example, **settings)(command)


# In the order of the help.
_add("Test", run, hunt, gate)
_add("Findings", replay, shrink, bisect, export, triage, report)
_add("Nights and clusters", nightly, watch, merge)
_add("Nights and clusters", submit, context_settings={"allow_interspersed_args": False})
_add("Nights and clusters", attach, extract)
_add("Reference", explain)
app.add_typer(faults_app, name="faults", rich_help_panel="Reference")
app.add_typer(probes_app, name="probes", rich_help_panel="Reference")
app.add_typer(situations_app, name="situations", rich_help_panel="Reference")
_add("Reference", schema)
_add("Setup", doctor, validate)
_add("Faults", measure, list_faults, show_fault, owner=faults_app)


def confirm_races(trace: Trace, config: RunConfig, times: int, source: str) -> Iterator[DelayedRuns]:
    """Yield the effect of each race of a trace on this machine's GPU.

    `engine_home` is the installation for GPUs. The races are found in the same release on the simulated device.

    Raises:
        InputError: a device other than the simulated one was named, a GPU cannot run the trace, or the simulated device
            has no such release.
        DeviceError: a device is not available.
    """
    if config.device != "sim":
        raise InputError(
            f"--device {config.device} and --confirm: races are found on the simulated device; use --device sim"
        )
    gpu = config.model_copy(update={"device": "cuda"})
    check_release(gpu)
    check_trace(trace, gpu, source)
    require_engine(gpu)
    kind = target_kind(config.engine)
    releases, version = kind.releases_on("sim"), kind.version(gpu.model_copy(update={"engine_path": ""}))
    if releases and version not in releases:
        has = f"{version} on the GPU; the simulated device has {', '.join(releases)}"
        raise InputError(f"--confirm: engine {config.engine} is {has}; install one of these for the GPU")
    simulated = config.model_copy(update={"engine_home": "", "release": version if releases else ""})
    return delay_source_lines(trace.explicit(), simulated, gpu, times)
