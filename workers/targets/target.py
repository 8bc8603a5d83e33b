"""Interface between a run and an engine, and the run configuration that selects an engine.

A `TargetKind` declares the capabilities of an engine and starts it; a `Target` is one running engine, with its
scheduler, model runner and drafter. `workers.run` combines it with the judges that its capabilities allow.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, AnyEvent, Hook, Submit
from scenarios.generation.weights import Area
from scenarios.sampling import Output
from scenarios.scenario_file import RunOn
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.edits.fix import SelectedEdits
from workers.lanes.lane import Observer, Watcher
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Access, Fact, MissingOrder, Site
from workers.record.log import Entry
from workers.record.observation import Observation
from workers.targets.exported import ExportedTest, ExportError, Finding

Device: TypeAlias = Literal["sim", "triton-cpu", "cuda", "cpu"]
# How the kernels of an engine run: replaced by our definitions of them, or in Triton's interpreter.
Kernels: TypeAlias = Literal["defined", "interpreted"]
# The devices of Specstorm's own engine.
DEVICES: tuple[Device, ...] = ("sim", "triton-cpu", "cuda")

# Fields of a run configuration: paths of programs, and fields that are read from the engine instead of being chosen.
PATHS = ("engine_home", "engine_path")
SEEN = ("engine_version", "engine_digest")

# The engine of this project, which runs by default.
SPECSTORM = "specstorm"


class DeviceError(Exception):
    """The selected device cannot be used in this process; the message says why."""


class EngineFailed(Exception):
    """An engine in a child process raised an exception, or the child process died.

    `where` is the source location that raised; `callers` are the callers of that function, nearest first.
    """

    def __init__(self, message: str, where: Site, callers: tuple[Site, ...] = ()) -> None:
        super().__init__(message)
        self.where, self.callers = where, callers


class RunConfig(Value):
    """Engine, device and options of a run: with the trace, all that may change its verdict.

    All fields are part of the key of every job.

    `release` selects one of the releases that `make` installs, empty for the default one. `engine_home` is the folder
    of another installation, `engine_path` a source tree that overlays the installed sources. Only the command line, the
    user's configuration file and Python callers set these two: a file holds a `RunOn`, which has no path.
    `engine_version` is the version that runs, `engine_digest` the digest of the source tree. `kernels` says whether
    kernels are replaced by their definitions or all run in Triton's interpreter. `fixes` names the findings whose fixes
    are applied to the engine's sources: `all`, or names separated by commas.
    """

    engine: str = SPECSTORM
    device: Device = "sim"
    release: str = ""
    engine_home: str = ""
    engine_path: str = ""
    engine_version: str = ""
    engine_digest: str = ""
    kernels: Kernels = "defined"
    fixes: str = ""

    @classmethod
    def of(cls, run_on: RunOn) -> "RunConfig":
        """Return the run configuration from the form that artefacts store.

        Raises:
            ValidationError: the device or `kernels` is unknown.
        """
        names = {"version": "engine_version", "sources": "engine_digest"}
        return cls.model_validate({names.get(name, name): value for name, value in run_on.recorded().items()})

    def run_on(self) -> RunOn:
        """Return the form of this configuration that artefacts store."""
        chosen = {name: value for name, value in self.changed().items() if name not in PATHS}
        return RunOn(version=self.engine_version, sources=self.engine_digest, **chosen)

    @property
    def text(self) -> str:
        """Return all fields as JSON text in a fixed order, from which job keys are made."""
        return self.model_dump_json()

    def changed(self) -> dict[str, str]:
        """Return the options with other values than their defaults, by name."""
        fields = type(self).model_fields
        return {name: str(value) for name, value in self if value != fields[name].default and name not in SEEN}

    def flags(self) -> list[str]:
        """Return the command-line flags that select this configuration."""
        return [part for name, value in self.changed().items() for part in (f"--{name.replace('_', '-')}", value)]


DEFAULT_CONFIG = RunConfig()


@dataclass(frozen=True, slots=True)
class Watch:
    """What to record in a run, e.g. races, or the last writers of buffers.

    `watcher` receives every memory access, if the engine runs on lanes. `blame` keeps the last writers of every buffer;
    for an engine that detects its own races it also finds out whether a race is harmful (slower). `without` removes
    waits, records and synchronisations, see `workers.lanes.base`. An `observer` replaces the watcher on simulated
    lanes, and is also notified when each op runs (slower still). `races` enables the race detection of an engine that
    has its own, `steps` the observation of scheduler, model runner and drafter in an engine that observes them only on
    request.
    """

    watcher: Watcher | None = None
    blame: bool = False
    without: frozenset[tuple[str, str]] = frozenset()
    observer: Observer | None = None
    races: bool = True
    steps: bool = False


class EditedFunctions(NamedTuple):
    """Functions that differ between an overlay and the installed sources, as `FILE:FUNCTION`.

    The run reports which `watched` functions were executed. It cannot do so for `compiled` ones, which are compiled
    from source or byte code.
    """

    watched: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()


NOTHING_EDITED = EditedFunctions()


# Replaces the plane in a key of `Places`: the variable is then a key of a request or of a specification (followed by
# its value, if it has several).
ASKED = "asked"
# Source locations of an engine, by the plane and variable of a finding; for crashes and races by function.
Places: TypeAlias = Mapping[tuple[str, str], tuple[Site, ...]]


class Confirmation(NamedTuple):
    """How to rerun a finding with slower kernels before it is reported.

    `otherwise` is the message if it is not reproduced. A run of more than `steps_max` steps would take too long; its
    finding is reported without confirmation.
    """

    config: RunConfig
    otherwise: str
    steps_max: int


class Unconfirmed(Exception):
    """Error: the rerun with slower kernels did not reproduce a finding.

    It is a bug of this project; the message says where.
    """


class Progress(NamedTuple):
    """Progress of an engine: submitted requests, processed results, most steps ahead.

    `run_ahead_max` is the most: 0 without async scheduling, 1 with async scheduling at depth 2.
    """

    requests: int
    commits: int
    run_ahead_max: int


class Target(Protocol):
    """One engine that runs one trace step by step, with tokens and observations as results.

    The driver owns ticks and events, the target owns the engine. Every target returns the output tokens of each
    request. The methods for captures, scheduler decisions and races return nothing here; a target whose capabilities
    declare these overrides them. `probes` counts how often each situation, such as a preemption, has happened.
    """

    probes: Mapping[str, int]

    @abstractmethod
    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        """Add a request, unless a request with this name is still running.

        `submit` is the number of the submit event in the trace. `script` has the draft token that a scripted drafter
        proposes at each position; it is empty for other drafters.
        """

    @abstractmethod
    def abort(self, event: Abort) -> None:
        """Abort the running request that the event names; ignore an unknown name."""

    @abstractmethod
    def apply(self, event: AnyEvent) -> None:
        """Apply any other event, e.g. a preemption or a prefix-cache reset."""

    @abstractmethod
    def step(self, happen: Callable[[Hook], None]) -> None:
        """Run one engine step; call `happen` at each hook of the step, to apply events."""

    @abstractmethod
    def drained(self) -> bool:
        """Return whether no request is running or waiting and no step is in flight."""

    @abstractmethod
    def outputs(self) -> dict[str, Output]:
        """Return the tokens delivered to clients so far, with finish reasons, by request name.

        If several requests had the same name, the output tokens are from the last of them.
        """

    @abstractmethod
    def progress(self) -> Progress:
        """Return the engine's progress so far."""

    @abstractmethod
    def close(self) -> None:
        """Release what the engine holds outside this process, e.g. its child process.

        Raises:
            EngineFailed: the engine's process failed while closing, and had not failed before.
        """

    def drain(self) -> None:
        """Run all device ops that are still enqueued.

        Raises:
            Deadlock: an op can never run.
        """
        return

    def take_log(self) -> list[Entry | Observation]:
        """Return the entries of the decision log since the last call, in order."""
        return []

    def take_engine_records(self) -> list[EngineRecord]:
        """Return the engine records since the last call: plans, model inputs, results ..."""
        return []

    def take_captures(self) -> list[Observation]:
        """Return the copies of device buffers made since the last call, in stream order."""
        return []

    def digest(self) -> str:
        """Return a hash of all copied device buffers so far; empty if the engine copies none."""
        return ""

    def left_over(self) -> Observation:
        """Return the requests and KV-cache blocks that the scheduler still holds."""
        raise AssertionError("left_over() is only for engines that log the decisions of their scheduler")

    def last_writers(self, step: int, variable: str) -> tuple[Access, ...]:
        """Return the last writers of a variable's memory when it was observed, newest first."""
        return ()

    def races(self) -> tuple[MissingOrder, ...]:
        """Return the races that the engine's own detector found."""
        return ()


class TargetKind(Protocol):
    """Properties of an engine (one object per `--engine` name), and how to start it.

    `package` is the Python package of its sources, which overlays may replace; empty for an engine of this program.
    `source_roots` are the folders of a checkout that may contain the package. `releases` are the versions that can be
    installed, each in a folder of its own, oldest first. `kernels` are the ways to run its kernels, if there are
    several. `executed` is the file that records the functions that each scenario executes in a release; it selects the
    scenarios for a change. `smoke` are the scenarios for a change that no scenario executes. If changed files match the
    patterns of `areas`, a hunt focuses on these areas of situations. `places` are the source locations that produce
    what each judge compares. `exports` says whether its findings can be exported as tests of the engine.
    """

    package: str = ""
    source_roots: Sequence[str] = ("",)
    executed: Path | None = None
    smoke: Sequence[str] = ()
    areas: Mapping[Area, Sequence[str]] = {}
    places: Places = {}
    kernels: Sequence[Kernels] = ()
    releases: Sequence[str] = ()
    exports: bool = False

    @property
    def name(self) -> str:
        """Name of the engine, as in `--engine`."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine supports (events, request features, options) and reports."""

    def capabilities_under(self, config: RunConfig) -> Capabilities:
        """Return the capabilities on the device of a configuration."""
        return self.capabilities

    def releases_on(self, where: Device) -> Sequence[str]:
        """Return the releases that `--release` selects on a device, the default one first."""
        return ()

    def unmet(self, trace: Trace) -> Fact | None:
        """Return why the trace's planted fault needs other options, or None."""
        return None

    def require(self, config: RunConfig) -> None:
        """Raise if this process cannot run the engine on the configuration's device.

        Raises:
            DeviceError: it cannot; the message says why.
        """

    def prepare(self, config: RunConfig) -> None:
        """Do once per process what a first run needs, such as compiling kernels.

        Raises:
            DeviceError: this process cannot use the device.
        """
        return

    def renew(self, config: RunConfig) -> bool:
        """Discard engines kept between runs; return whether there can have been any."""
        return False

    def restart(self, config: RunConfig) -> None:
        """End the engine's child process, which is kept between runs."""
        return

    def interpreted(self, config: RunConfig) -> Mapping[str, str]:
        """Return the kernels that run in Triton's interpreter, each with the reason.

        Raises:
            DeviceError: the engine, which knows the reasons, cannot be started.
        """
        return {}

    def overlay_description(self, config: RunConfig) -> str:
        """Return a text naming the overlaid source tree and the version; empty without overlay."""
        return ""

    def edited(self, config: RunConfig) -> EditedFunctions:
        """Return the functions of the overlay that differ from the installed package."""
        return NOTHING_EDITED

    def newly_run(self, config: RunConfig) -> Sequence[str]:
        """Return the edited functions that this process has run since the last call."""
        return ()

    def fixed(self, config: RunConfig) -> SelectedEdits:
        """Return the edits of the known-bug fixes that a configuration applies.

        The result also says why other fixes are not applied.
        """
        return SelectedEdits()

    def installed(self, config: RunConfig) -> Path | None:
        """Return the folder of the engine's installed package, None if it is not installed."""
        return None

    def version(self, config: RunConfig) -> str:
        """Return the version of the engine that a configuration runs; empty if it has none."""
        return ""

    def exported(self, finding: Finding) -> ExportedTest:
        """Return a test file for the engine's repository that reproduces a finding.

        Raises:
            ExportError: no test can reproduce it; the message says why.
        """
        raise ExportError(f"findings of engine {self.name} cannot be exported as tests")

    def released(self, config: RunConfig) -> RunConfig | None:
        """Return the configuration of the release under an overlay; None without an overlay."""
        return None

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        """Return how to confirm a finding by a slower rerun; None if no rerun is needed."""
        return None

    def release(self, version: str, folder: Path, config: RunConfig) -> AbstractContextManager[RunConfig]:
        """Install a release in a subfolder of `folder`; yield the configuration that runs it.

        A release that is there already is not installed again. The processes that were started end with the context.

        Raises:
            DeviceError: the release does not fit the installed packages; the message says why, in one line.
        """
        return nullcontext(config)

    def overlaid(self, tree: Path, config: RunConfig) -> AbstractContextManager[RunConfig]:
        """Overlay the installation with a source tree; yield the configuration that runs it.

        The processes that it has started end with the context.
        """
        return nullcontext(config)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> Target:
        """Start an engine for a trace with explicit prompts.

        Raises:
            DeviceError: this process cannot use the device.
        """
