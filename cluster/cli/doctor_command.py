"""Command `doctor`: test what this machine can run, and say how to get the rest."""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.table import Table

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_NOT_JUDGED
from cluster.cli.defaults import FILE, TABLE, defaults_file, may_select_programs
from cluster.cli.inputs import kernels_text
from cluster.cli.options import Json
from cluster.dispatch.job import build
from cluster.dispatch.machine import Check, checks_of_machine, checks_of_packages, checks_of_servers
from cluster.reports.documents import DoctorDocument
from cluster.reports.terminal import printable, show, show_json, show_table
from scenarios import codec
from scenarios.events import Submit
from scenarios.generation.fitting import fitted_to
from scenarios.trace import Trace
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import DEFAULT_CONFIG, SPECSTORM, DeviceError, RunConfig

TRACE = Trace(events=(Submit(tick=0, request="a", prompt=(1, 2, 3), max_tokens=2),))
# The first run may compile the simulated device, and read gigabytes of an engine from a cold disk.
TRIAL_SECONDS = 300.0
_COLOURS = {"limited": "yellow", "no": "red"}


def doctor(json: Json = False) -> int:
    """Test each engine on each device, and Ray, on this machine; say how to get what is missing.

    Exit code 0 if the built-in engine runs on sim, else 3.
    """
    if sys.stderr.isatty():
        show("testing every engine on every device, and a private Ray ...", to=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="specstorm-") as folder:
        trials = _trials(Path(folder))
    checks = [
        *checks_of_machine(Path.cwd()),
        _defaults(Path.cwd()),
        *checks_of_packages(),
        *checks_of_servers(),
        *trials,
    ]
    works = any(check.name == f"{SPECSTORM} on sim" and check.state == "yes" for check in checks)
    code = EXIT_AGREED if works else EXIT_NOT_JUDGED
    if json:
        document = DoctorDocument(specstorm=build(), exit_code=code, checks=tuple(checks))
        show_json(document)
    else:
        _print(checks)
    return code


def trace_for(config: RunConfig) -> Trace:
    """Return a small trace that an engine can run on the device of a configuration."""
    return fitted_to(TRACE, target_kind(config.engine).capabilities_under(config))


def _trials(folder: Path) -> list[Check]:
    """Run a small trace on each engine and device, and under Ray, each in its own process."""
    named = {}
    for engine in known_engines():
        for device in target_kind(engine).capabilities.devices:
            file = folder / f"{engine}-{device}.yaml"
            trace = trace_for(RunConfig.model_validate({"engine": engine, "device": device}))
            file.write_text(codec.dumps(trace), encoding="utf-8")
            named[f"{engine} on {device}"] = ["replay", "--engine", engine, "--device", device, str(file)]
    named["a private ray"] = ["run", "--ray", "local", "--workers", "1", "--out", str(folder / "campaign")]
    named["a private ray"].append(str(folder / f"{SPECSTORM}-sim.yaml"))
    # At most one per processor, so that no engine seems slow because it waits for one.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        trials = list(pool.map(lambda name: _trial(name, named[name]), named))
    return [*trials, *(check for engine in known_engines() if (check := _kernels(engine)) is not None)]


def _defaults(here: Path) -> Check:
    """Return the file that the defaults of options were read from."""
    file = defaults_file(here)
    if file is None:
        return Check(name="defaults", state="yes", seen=f"none: no {FILE} from {here} upwards, outside of campaigns")
    trust = "may" if may_select_programs(file, here) else "may not"
    return Check(name="defaults", state="yes", seen=f"{TABLE} of {file}, if there is one; it {trust} name programs")


def _kernels(engine: str) -> Check | None:
    """Return a check whether all kernels of an engine have a NumPy definition, or None."""
    kind = target_kind(engine)
    try:
        interpreted = kind.interpreted(DEFAULT_CONFIG.model_copy(update={"engine": engine})) if kind.kernels else None
    except DeviceError:
        return None
    if interpreted is None:
        return None
    seen = kernels_text(interpreted) if interpreted else "every kernel with a definition runs as its definition"
    return Check(name=f"kernels of {engine}", state="limited" if interpreted else "yes", seen=seen)


def _trial(name: str, words: list[str]) -> Check:
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster", *words],
            capture_output=True,
            text=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        seen = f"a small trace took longer than {TRIAL_SECONDS:g} s"
        return Check(name=name, state="no", seen=seen, remedy="run doctor again, on a machine that is less busy")
    if done.returncode == EXIT_AGREED:
        return Check(name=name, state="yes", seen=f"a small trace agreed, in {time.monotonic() - began:.1f} s")
    lines = [line for line in done.stderr.splitlines() if line.startswith("specstorm: ")] or done.stderr.splitlines()
    said = lines[-1].removeprefix("specstorm: ") if lines else f"exit code {done.returncode}"
    seen, _, remedy = said.partition("; ")
    return Check(name=name, state="no", seen=seen, remedy=remedy)


def _print(checks: list[Check]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(printable(check.name), check.state, printable(check.seen), style=_COLOURS.get(check.state))
    show_table(lambda _: table, sys.stdout)
    missing = [check for check in checks if check.remedy]
    if missing:
        show("", "to get the rest:", *(f"  {check.name}: {check.remedy}" for check in missing))
