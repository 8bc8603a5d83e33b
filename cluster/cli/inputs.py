"""Inputs of commands, read and checked before any work starts."""

import difflib
import os
import re
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import typer
from pydantic import ValidationError

from cluster.campaigns.suite import Scenario
from cluster.cli.selection import SelectionError, matcher
from cluster.dispatch.job import Job, code_digest
from cluster.dispatch.origin import ROOT
from cluster.dispatch.reach import check_address
from cluster.reports.terminal import say, show
from cluster.storage.artefact import found_on, portable
from cluster.storage.errors import first_problem
from scenarios import codec
from scenarios.capabilities import lacking
from scenarios.scenario_file import RunOn
from scenarios.trace import Trace
from scenarios.visible import visible_line
from workers.edits.fix import ALL, RACES, fixes_of
from workers.faults.registry import FAULTS
from workers.targets.devices import devices_with
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import DEFAULT_CONFIG, SPECSTORM, RunConfig, TargetKind

# Maximum length in bytes of a file name.
NAME_MAX = 255
STEM_MAX = 100
# Keys by which a scenario file selects how it is run.
OPTIONS = ("engine", "device", "release", "kernels", "fixes")
SCENARIOS = ROOT / "scenarios"
NO_FIXES = "none"
# Folders of bundled scenarios: for any engine, and for an engine of that name.
BUNDLED = ("smoke", "seeds", "regressions", *known_engines())


class InputError(ValueError):
    """Wrong input of a command; the message is one line for the user."""


def check_engine(engine: str) -> str:
    """Return the engine's name, or raise if it is unknown."""
    if engine in known_engines():
        return engine
    raise InputError(f"--engine is {engine}; known are {', '.join(known_engines())}")


def asked_config(context: typer.Context) -> RunConfig:
    """Return the run configuration that the command's options select."""
    return RunConfig.model_validate(
        {name: context.params[name] for name in RunConfig.model_fields if name in context.params}
    )


def config_of(asked: RunConfig) -> RunConfig:
    """Return the run configuration with absolute folders and digests of their contents.

    Raises:
        InputError: an engine is unknown, lacks the release or has no separate installation, or a folder does not
            contain it.
    """
    engine, home, path = check_engine(asked.engine), asked.engine_home, asked.engine_path
    package = target_kind(engine).package
    if asked.kernels != DEFAULT_CONFIG.kernels and asked.kernels not in target_kind(engine).kernels:
        raise InputError(f"--kernels is {asked.kernels}; engine {engine} has no kernel definitions")
    check_release(asked)
    named = [("--engine-home", home), ("--engine-path", path)]
    for option, folder in named:
        if folder and not package:
            raise InputError(f"{option} is {folder}; engine {engine} has no separate installation")
        if folder and not Path(folder).is_dir():
            raise InputError(f"{option} is {folder}; the folder does not exist")
    path = sources_of(path, target_kind(engine)) if path else ""
    config = RunConfig(
        engine=engine,
        device=asked.device,
        release=asked.release,
        engine_home=os.path.abspath(home) if home else "",
        engine_path=os.path.abspath(path) if path else "",
        engine_digest=code_digest(Path(path), (package,)) if path else "",
        kernels=asked.kernels,
        fixes=check_fixes(asked.fixes, package),
    )
    return config.model_copy(update={"engine_version": target_kind(engine).version(config)})


def check_release(asked: RunConfig) -> None:
    """Raise if an engine lacks the release that a configuration selects, or if both release and home are given.

    Raises:
        InputError: as above; the message names the releases.
    """
    if not asked.release:
        return
    has = ", ".join(target_kind(asked.engine).releases_on(asked.device)) or "one release only"
    if asked.engine_home:
        raise InputError("--release and --engine-home both select an installation; give one of them")
    if asked.release not in target_kind(asked.engine).releases_on(asked.device):
        raise InputError(f"--release is {asked.release}; engine {asked.engine} on {asked.device} has {has}")


def sources_of(root: str, kind: TargetKind) -> str:
    """Return the folder that contains an engine's package, given a source root or checkout.

    Raises:
        InputError: the package is not found.
    """
    folders = [os.path.join(root, each) for each in kind.source_roots]
    for folder in folders:
        if Path(folder, kind.package, "__init__.py").is_file():
            return folder
    looked_for = " or ".join(os.path.join(folder, kind.package) for folder in folders)
    raise InputError(f"--engine-path is {root}; package {kind.package} was not found: {looked_for} does not exist")


def check_fixes(asked: str, package: str) -> str:
    """Return the fixes that `--fixes` names, as sorted words; "" for `none`.

    Raises:
        InputError: the package has no fix of this name.
    """
    fixes = fixes_of(package) if package else {}
    words = sorted({word.strip() for word in asked.split(",")} - {"", NO_FIXES})
    for word in words:
        if word not in fixes and word not in (ALL, RACES):
            near = difflib.get_close_matches(word, fixes, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise InputError(
                f"--fixes names {word!r}; {hint}allowed are all, races, none, or names of findings that have a fix"
            )
    return ",".join(words) if fixes else ""


def is_typed(context: typer.Context, name: str) -> bool:
    """Return whether a parameter was typed on the command line, not taken from a default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def config_for(file: Path, asked: RunConfig, context: typer.Context) -> RunConfig:
    """Return the run configuration for a scenario file, with the file's options.

    Without a typed engine, the file's options.

    `context` is the command's context, which knows the typed options. Prints a line if the file was found on other
    sources.

    Raises:
        InputError: as `config_of`, or the file names an unknown device.
        ScenarioError: the file cannot be read.
    """
    typed = {name for name in RunConfig.model_fields if is_typed(context, name)}
    if "engine_home" in typed:
        # It selects the installation, as the file's release does.
        typed.add("release")
    found = codec.run_on(file)
    named = {} if "engine" in typed else found.model_dump(include={*OPTIONS}, exclude_defaults=True)
    values = {**asked.model_dump(), **{name: value for name, value in named.items() if name not in typed}}
    try:
        config = config_of(RunConfig.model_validate(values))
    except ValidationError as error:
        raise InputError(f"{file}: run_on.{first_problem(error)}") from error
    other = other_sources(found, found_on(config), target_kind(config.engine).releases_on(config.device))
    if other:
        say(f"{file}: {other}")
    return config


def other_sources(found: RunOn, here: RunOn, releases: Collection[str] = ()) -> str:
    """Return a sentence if the engine sources differ from those of a finding; else "".

    A trace that records neither version nor sources differs from nothing. `releases` are those that can be selected.
    """
    if not (found.version or found.sources):
        return ""
    seen, now = (_sources_text(each) for each in (found, here))
    if seen == now:
        return ""
    hint = "; use --engine-path to select a source tree" if found.sources and not here.sources else ""
    if not found.sources and found.version in releases:
        hint = f"; use --release {found.version} to select that release"
    return f"was found on {seen}; this run has {now}{hint}"


def _sources_text(run_on: RunOn) -> str:
    release = f"{run_on.engine or SPECSTORM} {run_on.version or 'without a version'}"
    return f"{release} with overlaid sources {run_on.sources}" if run_on.sources else release


def check_fault(fault: str) -> str:
    """Return the id of a known fault, or raise with suggestions."""
    if fault in FAULTS:
        return fault
    near = difflib.get_close_matches(fault, FAULTS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(f"unknown fault {fault!r}; {hint}`specstorm faults list` shows all {len(FAULTS)}")


def read_trace(path: Path, is_limited: bool = True) -> Trace:
    """Return the trace of a scenario file, or raise if it names an unknown fault.

    `is_limited` refuses traces that cost too much.
    """
    trace = codec.load(path, is_limited=is_limited)
    for index, fault in enumerate(trace.faults):
        try:
            check_fault(fault)
        except InputError as error:
            raise InputError(f"{path}:{codec.line_of(path, ('faults', index))}: {error}") from error
    return trace


def check_faults(faults: Sequence[str], config: RunConfig, source: str) -> None:
    """Raise if the engine lacks a fault on this device.

    Ignoring them would mean reporting that they were not found.
    """
    if faults and not target_kind(config.engine).capabilities.faults:
        raise InputError(f"{source}: fault {faults[0]}: engine {config.engine} has no faults to switch on")
    for fault in faults:
        devices = devices_with(FAULTS[fault])
        if config.device not in devices:
            made = "it replaces the NumPy code of a device op"
            raise InputError(f"{source}: fault {fault} exists on --device {', '.join(devices)} only: {made}")


def check_trace(trace: Trace, config: RunConfig, source: str) -> None:
    """Raise if the engine cannot run a trace, or a fault does not exist on the device."""
    lacks = lacking(trace, target_kind(config.engine).capabilities_under(config))
    if lacks is not None:
        raise InputError(f"{source}: engine {config.engine} cannot run it: {lacks}")
    check_faults(trace.faults, config, source)


def bundled_path(path: Path) -> Path:
    """Return a path or, if it does not exist, the bundled scenarios of that name."""
    ours = SCENARIOS / path
    if os.path.lexists(path) or path.is_absolute() or path.parts[:1] not in {(name,) for name in BUNDLED}:
        return path
    return ours if ours.exists() else path


def name_of(path: Path) -> str:
    """Return the name of a scenario: its path as given, or a bundled one's portable path."""
    ours = path.relative_to(SCENARIOS) if path.is_absolute() and path.is_relative_to(SCENARIOS) else path
    return visible_line(str(ours if ours.parts[0] in BUNDLED else path))


def read_scenarios(
    paths: Sequence[Path],
    seed: int | None,
    faults: Sequence[str],
    config: RunConfig = DEFAULT_CONFIG,
    is_limited: bool = True,
    keyword: str | None = None,
) -> tuple[list[Scenario], int]:
    """Return the scenarios of files and folders, and how many the engine cannot run.

    `seed` replaces the seed, `faults` are added, `keyword` selects by name before a file is read.

    A trace with faults shows a known bug: in a folder it is skipped, and stderr says so. A trace that the engine cannot
    run is also skipped, with the reason.

    Raises:
        InputError: no scenario is left, or a named file is invalid.
    """
    added = tuple(check_fault(fault) for fault in faults)
    named = {os.path.realpath(path) for path in map(bundled_path, paths) if path.is_file()}
    scenarios, left_out, refused = [], 0, list[str]()
    try:
        fits = matcher(keyword) if keyword is not None else lambda name: True
    except SelectionError as error:
        raise InputError(str(error)) from error
    all_paths = codec.find_scenarios([bundled_path(path) for path in paths])
    found = [path for path in all_paths if fits(name_of(path))]
    if not found:
        raise InputError(f"-k is {keyword!r}: matches none of {len(all_paths)} names; --list shows them")
    for path in found:
        trace = read_trace(path, is_limited)
        if trace.faults and os.path.realpath(path) not in named:
            left_out += 1
            continue
        update: dict[str, object] = {"faults": tuple(dict.fromkeys((*trace.faults, *added)))}
        if seed is not None:
            update["seed"] = seed
        trace = trace.model_copy(update=update)
        try:
            check_trace(trace, config, str(path))
        except InputError as error:
            if os.path.realpath(path) in named:
                raise
            refused.append(str(error))
            continue
        scenarios.append(Scenario(name_of(path), Job.of(trace, sweep=True, config=config)))
    below = ", ".join(visible_line(str(path)) for path in paths if bundled_path(path).is_dir())
    how = "name the file of one to run it; `specstorm nightly` replays all"
    if not scenarios and refused:
        more = f"; {len(refused) - 1} more are refused, no scenario is left to run" if len(refused) > 1 else ""
        raise InputError(f"{refused[0]}{more}")
    if not scenarios:
        raise InputError(f"{below}: skipped all scenarios ({left_out}), which switch faults on; {how}")
    if left_out:
        show(f"{below}: {left_out} scenarios that switch faults on were skipped; {how}", to=sys.stderr)
    for reason in refused:
        say(reason)
    return scenarios, len(refused)


def read_regressions(folder: Path) -> dict[str, Trace]:
    """Return the regressions (traces of faults) in a folder, by portable path.

    Raises:
        ScenarioError: a file is not a scenario.
        InputError: a fault is unknown.
    """
    return {portable(str(path)): read_trace(path) for path in codec.find_scenarios([bundled_path(folder)])}


def check_writable(folder: Path) -> None:
    """Raise, before any work, if nothing can be written to a folder.

    Raises:
        InputError: it is not a folder, cannot be created, or cannot be written.
    """
    existing = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    try:
        if not stat.S_ISDIR(existing.stat().st_mode):
            raise InputError(f"{existing}: is not a folder; name one that can be written with --out")
    except OSError as error:
        raise InputError(f"{existing}: {error.strerror}; name a folder that can be written with --out") from error
    if not os.access(existing, os.W_OK | os.X_OK) or any(len(os.fsencode(part)) > NAME_MAX for part in folder.parts):
        why = "cannot be written, or its name is too long"
        raise InputError(f"{folder}: {why}; name a folder that can be written with --out")


def require_engine(config: RunConfig) -> None:
    """Raise unless the engine can run here; print its overlaid sources, fixes, kernels.

    Raises:
        DeviceError: it cannot; the message says why.
    """
    kind = target_kind(config.engine)
    kind.require(config)
    laid_over = kind.overlay_description(config)
    if laid_over:
        say(f"engine {config.engine}: {laid_over}")
    applied = kind.fixed(config)
    if applied.names:
        say(f"engine {config.engine}: fixes of {len(applied.names)} known bugs are applied")
    for name, why in applied.refused.items():
        refused = f"the fix of {name} is not applied, so this bug may be reported as new: {why}"
        say(f"engine {config.engine}: {refused}")
    interpreted = kind.interpreted(config) if config.engine_home or config.engine_path else {}
    if interpreted:
        say(f"engine {config.engine}: {kernels_text(interpreted)}")


def kernels_text(interpreted: Mapping[str, str]) -> str:
    """Return which kernels are interpreted, and why."""
    named = ", ".join(f"{name} {why}" for name, why in sorted(interpreted.items()))
    return f"kernels that are interpreted, slowly: {named}"


def ray_address(
    setting: str, workers: int | None, config: RunConfig, context: typer.Context | None = None
) -> str | None:
    """Return the address of a Ray to join, `local` for a private one, None without Ray.

    Without Ray, a typed number of workers is refused; a default one is ignored.

    Raises:
        DeviceError: there is no Ray, and this process cannot run on the device.
    """
    if setting == "off":
        if (workers or 1) > 1 and (context is None or is_typed(context, "workers")):
            raise InputError(f"--workers is {workers}; --ray off runs one engine, in this process")
        require_engine(config)
        return None
    address = (os.environ.get("RAY_ADDRESS") or "local") if setting == "auto" else setting
    if "://" in address:
        seen = "RAY_ADDRESS" if setting == "auto" else "--ray"
        raise InputError(
            f"{seen} is {address}; expected local, off or HOST:PORT (for a job server use `specstorm submit`)"
        )
    check_address(address)
    if address == "local" and target_kind(config.engine).package:
        # Workers on this machine use the same installation as this process.
        require_engine(config)
    return address


def campaign_stem(paths: Sequence[Path]) -> str:
    """Return the name of a new campaign's folder, without its number."""
    name = Path(os.path.realpath(paths[0])).name.removesuffix(".yaml")
    # A leading dot would hide the folder, a leading dash would look like an option.
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:STEM_MAX].lstrip(".-") or "campaign"
