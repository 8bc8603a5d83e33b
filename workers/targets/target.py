"""Protocol of the engines that a run can drive, and the run configuration that names one.

A `TargetKind` declares what an engine can do and starts it; a `Target` is one that runs. `workers.run` composes it with
the judges that its capabilities allow.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, AnyEvent, Place, Submit
from scenarios.generation.weights import Area
from scenarios.sampling import Output
from scenarios.scenario_file import RunOn
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.edits.fix import Applied
from workers.lanes.lane import Observer, Watcher
from workers.record.evidence import Access, Fact, MissingOrder, Site
from workers.record.log import Entry
from workers.record.observation import Observation
from workers.record.shown import Shown
from workers.targets.exported import ExportedTest, ExportError, Finding

Device: TypeAlias = Literal["sim", "triton-cpu", "cuda", "cpu"]
# How kernels of an engine run that has definitions of them.
Kernels: TypeAlias = Literal["defined", "interpreted"]
# Those of our own engine.
DEVICES: tuple[Device, ...] = ("sim", "triton-cpu", "cuda")

# Fields of a run configuration that say where programs are, and those that are seen and not chosen.
PATHS = ("engine_home", "engine_path")
SEEN = ("engine_version", "engine_digest")

# The engine of this project, which runs by default.
SPECSTORM = "specstorm"


class DeviceError(Exception):
    """A device that this process cannot run on; the message says why."""


class EngineFailed(Exception):
    """An engine in another process raised, or its process died; `where` is the place that it names.

    `callers` are those of that place, the nearest first.
    """

    def __init__(self, message: str, where: Site, callers: tuple[Site, ...] = ()) -> None:
        super().__init__(message)
        self.where, self.callers = where, callers


class RunConfig(Value):
    """Engine and device of a run, and options that may change a verdict: all of it is part of the key of every job.

    `engine_home` is where an engine is installed, `engine_path` a tree of sources that is laid over that. Only the
    command line, the user's configuration and a caller in Python set them: a file holds a `RunOn`, which has no path.
    `engine_version` is the version that runs, `engine_digest` the digest of the tree. `kernels` says whether kernels
    run as their definitions or are all interpreted.
    `fixes` are the findings whose fixes are applied to the engine's sources: `all`, or names separated by commas.
    """

    engine: str = SPECSTORM
    device: Device = "sim"
    engine_home: str = ""
    engine_path: str = ""
    engine_version: str = ""
    engine_digest: str = ""
    kernels: Kernels = "defined"
    fixes: str = ""

    @classmethod
    def of(cls, run_on: RunOn) -> "RunConfig":
        """Return the configuration that a file names; ValidationError for an unknown device or unknown kernels."""
        names = {"version": "engine_version", "sources": "engine_digest"}
        return cls.model_validate({names.get(name, name): value for name, value in run_on.recorded().items()})

    def run_on(self) -> RunOn:
        """Return what a file records of it: all but the paths; a default is left out."""
        chosen = {name: value for name, value in self.changed().items() if name not in PATHS}
        return RunOn(version=self.engine_version, sources=self.engine_digest, **chosen)

    @property
    def text(self) -> str:
        """Return the canonical text of all of it, for keys."""
        return self.model_dump_json()

    def changed(self) -> dict[str, str]:
        """Return what a user chooses and differs from the defaults, by name."""
        fields = type(self).model_fields
        return {name: str(value) for name, value in self if value != fields[name].default and name not in SEEN}

    def flags(self) -> list[str]:
        """Return the command-line flags that choose it; none for the defaults."""
        return [part for name, value in self.changed().items() for part in (f"--{name.replace('_', '-')}", value)]


DEFAULT_CONFIG = RunConfig()


@dataclass(frozen=True, slots=True)
class Watch:
    """How a run is watched from outside, none of which changes what the engine does.

    `watcher` is told of every access to memory, where there are lanes; `blame` keeps the last writers of every buffer
    or, of a target that watches its own accesses, finds out whether a race did harm (slower); `without` removes waits,
    records and synchronisations, see `workers.lanes.base`. An `observer` takes the watcher's place on simulated lanes,
    and is told besides when each op runs (slower still). `races` is for a target that watches its own accesses, `steps`
    for one that shows its steps only if it is asked to.
    """

    watcher: Watcher | None = None
    blame: bool = False
    without: frozenset[tuple[str, str]] = frozenset()
    observer: Observer | None = None
    races: bool = True
    steps: bool = False


class Edited(NamedTuple):
    """Functions that an overlay changes, each as `FILE:FUNCTION`.

    `compiled` are those of which it is not seen whether they run: they are compiled from their source or byte code.
    """

    watched: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()


NOTHING_EDITED = Edited()


# In place of a plane: what a request or a specification asks for, by its key (and its text, if that is one of several).
ASKED = "asked"
# Places of an engine's program, by the plane and the variable of a finding; of crashes and races by function.
Places: TypeAlias = Mapping[tuple[str, str], tuple[Site, ...]]


class Confirmation(NamedTuple):
    """The configuration under which a finding is confirmed before it is told, and what is wrong if it is not seen.

    A run of more than `steps_max` steps takes too long there, and is told as it is.
    """

    config: RunConfig
    otherwise: str
    steps_max: int


class Unconfirmed(Exception):
    """A finding that a slower run of the same engine does not show: the mistake is ours; the message says where."""


class Progress(NamedTuple):
    """How far an engine has come: requests taken in, results of requests processed, whole steps run ahead at most."""

    requests: int
    commits: int
    run_ahead_max: int


class Target(Protocol):
    """One engine that runs: driven step by step, and asked for what it shows.

    Its driver owns ticks and events, the target owns the engine. Every target shows what it delivers; what else it
    shows, and says so in its capabilities, it answers itself. The answers here are those of one that does not.
    `probes` counts how often each interesting thing has happened.
    """

    probes: Mapping[str, int]

    @abstractmethod
    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        """Add the request of the trace's submit number `submit`, unless one of its name is alive.

        `script` is the token that a scripted drafter proposes at each position; empty where drafts are not scripted.
        """

    @abstractmethod
    def abort(self, event: Abort) -> None:
        """Abort the live request with the event's name."""

    @abstractmethod
    def apply(self, event: AnyEvent) -> None:
        """Apply an event that is neither a submit nor an abort."""

    @abstractmethod
    def step(self, happen: Callable[[Place], None]) -> None:
        """Do one step; `happen` is called at each place of it at which events take effect, in order."""

    @abstractmethod
    def drained(self) -> bool:
        """Tell whether no request is alive and no step is in flight."""

    @abstractmethod
    def outputs(self) -> dict[str, Output]:
        """Return what the client has of each request so far, by name; of several of a name the last one's."""

    @abstractmethod
    def progress(self) -> Progress:
        """Return how far the engine has come."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the engine holds outside this process's memory.

        Raises:
            EngineFailed: an engine in another process failed to, and had not failed before.
        """

    def drain(self) -> None:
        """Let everything run that is still enqueued; of an engine without lanes of ours that is nothing.

        Raises:
            Deadlock: something can never run.
        """
        return

    def take_log(self) -> list[Entry | Observation]:
        """Return the host's decisions and observations since the last call, in order."""
        return []

    def take_shown(self) -> list[Shown]:
        """Return what the engine has shown of its steps since the last call, in order."""
        return []

    def take_captures(self) -> list[Observation]:
        """Return the device's captures since the last call, in stream order."""
        return []

    def digest(self) -> str:
        """Return a hash of all captures so far, or an empty one where there are none."""
        return ""

    def left_over(self) -> Observation:
        """Return what the host still holds; once everything is drained this is to be nothing."""
        raise AssertionError("what a host holds is asked of engines that log their decisions")

    def last_writers(self, step: int, variable: str) -> tuple[Access, ...]:
        """Return the last writers of a variable's memory at its capture, newest first."""
        return ()

    def races(self) -> tuple[MissingOrder, ...]:
        """Return the unordered accesses that the engine has seen itself, less those that are known."""
        return ()


class TargetKind(Protocol):
    """A kind of engine: what it can do, and how one of it is started.

    `package` is the Python package of its sources, which others may be laid over; empty of an engine within this
    program. It is in one of the folders `source_roots` of a checkout of the engine. `releases` are versions that can be
    installed, each in a folder of its own, oldest first. `kernels` are the ways in which its kernels run, where there
    are several. `executed` is the file that records what each scenario executes of a release, by which scenarios are
    selected for a change; `smoke` are the scenarios for a change that no scenario executes. A change of files that the
    patterns of `areas` match focuses a hunt on these areas of situations. `places` are to see to what judges look at.
    `exports` tells whether its findings become tests of its own.
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
        """Its name, as `--engine` takes it."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can be asked for, and what it shows."""

    def capabilities_under(self, config: RunConfig) -> Capabilities:
        """Return what it can be asked for on the device of a configuration, and what it shows there."""
        return self.capabilities

    def unmet(self, trace: Trace) -> Fact | None:
        """Return the requirement of a fault that the specification of a trace does not meet, or None."""
        return None

    def require(self, config: RunConfig) -> None:
        """Make sure that this process can run it on the device of a configuration.

        Raises:
            DeviceError: it cannot; the message says why.
        """

    def prepare(self, config: RunConfig) -> None:
        """Do what is done once before the first run in a process, as to compile kernels.

        Raises:
            DeviceError: this process cannot run on the device.
        """
        return

    def renew(self, config: RunConfig) -> bool:
        """Drop the engines that are kept between runs; tell whether any might be."""
        return False

    def restart(self, config: RunConfig) -> None:
        """End the process that an engine has of its own between runs, and all that it has loaded."""
        return

    def interpreted(self, config: RunConfig) -> Mapping[str, str]:
        """Return why kernels do not run as their definitions, by name, where it has definitions of kernels.

        Raises:
            DeviceError: it cannot be started to say so.
        """
        return {}

    def laid_over(self, config: RunConfig) -> str:
        """Return what runs where sources are laid over an installation, nothing where none are."""
        return ""

    def edited(self, config: RunConfig) -> Edited:
        """Return the functions of sources laid over an installation that differ from the installed ones."""
        return NOTHING_EDITED

    def newly_run(self, config: RunConfig) -> Sequence[str]:
        """Return the edited functions that have run in this process's engine since the last call."""
        return ()

    def fixed(self, config: RunConfig) -> Applied:
        """Return the edits of known bugs that a configuration applies, and why the others are not applied."""
        return Applied()

    def installed(self, config: RunConfig) -> Path | None:
        """Return the folder that the package of its sources is installed in, None if there is none."""
        return None

    def version(self, config: RunConfig) -> str:
        """Return the version that a configuration runs, nothing where none is told."""
        return ""

    def exported(self, finding: Finding) -> ExportedTest:
        """Return the test that a finding becomes, for people who have the engine and not this project.

        Raises:
            ExportError: no test shows it; the message says why.
        """
        raise ExportError(f"findings of engine {self.name} are not exported")

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        """Return what else a finding must be seen under to be one, None if nothing."""
        return None

    def release(self, version: str, folder: Path, config: RunConfig) -> AbstractContextManager[RunConfig]:
        """Install a release below a folder unless it is there; give the configuration that runs it.

        What it has started ends with the context.

        Raises:
            DeviceError: the release cannot be installed beside what is there; the message says why, in one line.
        """
        return nullcontext(config)

    def over(self, tree: Path, config: RunConfig) -> AbstractContextManager[RunConfig]:
        """Lay a tree of sources over an installation; give the configuration that runs it.

        What it has started ends with the context.
        """
        return nullcontext(config)

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> Target:
        """Start an engine as an explicit trace specifies it, under its schedule and with its faults.

        Raises:
            DeviceError: this process cannot run on the device.
        """
