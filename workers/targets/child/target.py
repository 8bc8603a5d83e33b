"""Targets in a process of their own: one trace is driven by messages, on an engine that the process keeps between them.

A kind of engine derives from `ChildKind`; what its process answers is of `workers.targets.child.inside`. Whatever the
process does is an `EngineFailed` of the message it was asked with, at the latest once it has had its time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from scenarios.events import Abort, AnyEvent, EndSession, Pausing, Place, Submit
from scenarios.sampling import Output
from scenarios.spec import ENGINE, Value
from scenarios.trace import Trace
from workers.edits.fix import Applied, applied, fixes_of, selected
from workers.edits.functions import edits_of
from workers.record.evidence import Access, MissingOrder
from workers.record.shown import Shown
from workers.targets.child.answers import Delivery, Harmed, Kernels, Nothing, Ran, Reported, Stepped
from workers.targets.child.installation import packages_of
from workers.targets.child.messages import Message
from workers.targets.child.process import INTERRUPTS, EngineProcess, EngineRaised, Keeper
from workers.targets.target import (
    NOTHING_EDITED,
    Confirmation,
    DeviceError,
    Edited,
    EngineFailed,
    Progress,
    RunConfig,
    Target,
    TargetKind,
    Watch,
)

_DEVICES = {
    "sim": "sim (streams and pinned memory, simulated)",
    "cuda": "cuda (a GPU, whose streams a schedule delays)",
}

# An interpreted step takes about a second.
CONFIRMED_STEPS_MAX = 128

A = TypeVar("A", bound=Value)


@cache
def _applied(package: str, names: str, roots: tuple[Path, ...]) -> Applied:
    """Return the fixes of a package that fit the sources in `roots`: to find that out takes a second."""
    return applied(selected(fixes_of(package), names), roots)


# Reasons of parts behind which a session goes on.
_GOES_ON = ("stop", "length")


@dataclass(slots=True, eq=False)
class _Parts:
    """The parts of a session: the `current` one, and those that wait for its end; none is added if it `is_over`."""

    current: str
    waiting: list[str] = field(default_factory=list)
    is_over: bool = False


class ChildTarget(Target):
    """One trace on an engine in a process of its own."""

    def __init__(self, trace: Trace, process: EngineProcess, watch: Watch) -> None:
        self.probes: Mapping[str, int] = {}
        self._process = process
        self._depth = trace.spec.depth
        self._watch = watch
        self._reported: Reported | None = None
        self._delivered: dict[str, Output] = {}
        self._pending: list[Message] = []
        self._is_drained = True
        self._has_failed = False
        self._num_requests = 0
        self._num_outputs = 0
        self._seen: list[Shown] = []
        self._writers: dict[tuple[int, str], tuple[Access, ...]] = {}
        self._sessions: dict[str, _Parts] = {}
        # The last part of each session that no event ends.
        last = {submit.session: submit.request for submit in trace.submitted() if submit.session is not None}
        ended = {event.session for event in trace.events if isinstance(event, EndSession)}
        self._last_parts = {request: session for session, request in last.items() if session not in ended}
        opened = {"spec": trace.spec.model_dump_json(), "schedule": trace.schedule.model_dump_json()}
        self._ask({"do": "open", **opened, "races": watch.races, "steps": watch.steps, "writers": watch.blame}, Nothing)

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        assert script == [], "draft tokens of an engine in a process of its own are not scripted"
        before = self._delivered.get(event.request)
        if event.session is not None:
            self._add_part(event, event.session)
        elif before is None or before.finish_reason is not None:
            self._take(event.request)
            self._pending.append(event.model_dump(mode="json"))

    def _take(self, request: str) -> None:
        """Have an output for a request that is there from now on."""
        self._num_requests += 1
        self._delivered[request] = Output((), None)

    def _add_part(self, event: Submit, session: str) -> None:
        """Add a part to a session that is not over, and end it behind its last one."""
        parts = self._sessions.get(session)
        if parts is None:
            self._take(event.request)
            self._sessions[session] = _Parts(event.request)
        elif parts.is_over:
            return
        else:
            parts.waiting.append(event.request)
        self._pending.append(event.model_dump(mode="json"))
        self._begin_parts()
        if event.request in self._last_parts:
            self.apply(EndSession(tick=event.tick, at=event.at, session=session))

    def _begin_parts(self) -> None:
        """Have outputs for parts of sessions behind parts that have ended, and give up those of others."""
        for parts in self._sessions.values():
            reason = self._delivered[parts.current].finish_reason
            if reason not in (None, *_GOES_ON):
                parts.is_over = True
                parts.waiting.clear()
            elif reason is not None and parts.waiting:
                parts.current = parts.waiting.pop(0)
                self._take(parts.current)

    def abort(self, event: Abort) -> None:
        request = self._delivered.get(event.request)
        if request is not None and request.finish_reason is None:
            self._delivered[event.request] = request._replace(finish_reason="abort")
            self._pending.append(event.model_dump(mode="json"))
            # A part that comes in the same tick is already too late.
            self._begin_parts()

    def apply(self, event: AnyEvent) -> None:
        match event:
            case EndSession(session=session) if session in self._sessions:
                self._sessions[session].is_over = True
            case Pausing(mode="abort"):
                # Ends of the parts that it gives up are delivered later.
                for parts in self._sessions.values():
                    parts.is_over |= self._delivered[parts.current].finish_reason is None
            case _:
                pass
        self._pending.append(event.model_dump(mode="json"))

    def step(self, happen: Callable[[Place], None]) -> None:
        """Do one step, unless there is nothing to do.

        Events name their place: the engine's process lets those that belong into the step happen there.
        """
        happen("before_schedule")
        if self.drained():
            return
        happen("before_process")
        events, self._pending = self._pending, []
        answer = self._ask({"do": "step", "events": events}, Stepped)
        for delivery in answer.deliveries:
            self._deliver(delivery)
        self._begin_parts()
        self._is_drained = answer.drained
        self.probes = answer.probes
        self._show(answer.seen)

    def _deliver(self, delivery: Delivery) -> None:
        request = self._delivered.get(delivery.request)
        if request is None:
            self._has_failed = True
            raise self._process.refuse(f"delivered to {delivery.request!r}, who was never submitted")
        self._num_outputs += 1
        if request.finish_reason is None or delivery.is_late:
            self._delivered[delivery.request] = request.with_more(delivery.output)

    def drained(self) -> bool:
        return self._is_drained and not self._pending

    def outputs(self) -> dict[str, Output]:
        return dict(self._delivered)

    def progress(self) -> Progress:
        return Progress(self._num_requests, self._num_outputs, self._depth - 1)

    def take_shown(self) -> list[Shown]:
        taken, self._seen = self._seen, []
        return taken

    def last_writers(self, step: int, variable: str) -> tuple[Access, ...]:
        return self._writers.get((step, variable), ())

    def _show(self, seen: tuple[Shown, ...]) -> None:
        """Take in observations, and who wrote what was observed, of several of one step the newest first."""
        self._seen += seen
        for each in (each for each in seen if each.of == ENGINE):
            for variable, writers in each.writers.items():
                before = self._writers.get((each.step, variable), ())
                self._writers[each.step, variable] = tuple(dict.fromkeys((*writers, *before)))

    def drain(self) -> None:
        """Have the process report on the trace, if it was to watch anything of it."""
        if self._watch.races or self._watch.steps:
            self._reported = self._ask({"do": "report"}, Reported)
            self._show(self._reported.seen)

    def races(self) -> tuple[MissingOrder, ...]:
        """Return the races of the run, the first with its harm if a run is watched for that.

        Harm is looked for by running the trace again, which needs an engine that has drained.
        """
        if self._reported is None:
            self.drain()
        found = [race.order for race in self._reported.races] if self._reported is not None else []
        if found and self._watch.blame and self.drained() and not self._has_failed:
            harm = self._ask({"do": "harm", "race": 0}, Harmed).harm
            found[0] = found[0].model_copy(update={"harm": harm})
        return tuple(found)

    def close(self) -> None:
        """Give the engine back to its process, which keeps it if it has drained.

        Raises:
            EngineFailed: that failed, and nothing before it.
        """
        if not self._has_failed:
            self._ask({"do": "close"}, Nothing)

    def _ask(self, question: Message, kind: type[A]) -> A:
        try:
            return self._process.ask(question, kind)
        except (EngineFailed, *INTERRUPTS) as error:
            # The process has abandoned the trace, or ended.
            self._has_failed = True
            if isinstance(error, EngineRaised):
                self._show(error.seen)
            raise


class ChildKind(TargetKind):
    """A kind of engine that runs in a process of its own, kept from trace to trace; `keeper` returns its keeper.

    One that is a package of its own is installed in its `home`. `definition_is_wrong` says what is wrong where a
    finding shows with definitions of its kernels alone. Files of its sources whose names begin as one of `stand_ins`
    run on the simulated device in the place of what a GPU runs.
    """

    definition_is_wrong: str = ""
    stand_ins: Sequence[str] = ()

    def require(self, config: RunConfig) -> None:
        if config.device not in self.capabilities.devices:
            allowed = " and ".join(_DEVICES.get(device, device) for device in self.capabilities.devices)
            raise DeviceError(f"{config.device}: engine {self.name} runs on {allowed}")
        self.keeper(config).launch()

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> ChildTarget:
        keeper = self.keeper(config)
        try:
            return ChildTarget(trace, keeper.process(), watch)
        except EngineFailed:
            # What is left of an engine that was half made may be in the way of every further one.
            keeper.stop()
            raise

    def renew(self, config: RunConfig) -> bool:
        """Drop all engines that are kept; a process that fails to do so is ended."""
        keeper = self.keeper(config)
        try:
            keeper.process().ask({"do": "forget"}, Nothing)
        except EngineFailed:
            keeper.stop()
        return True

    def restart(self, config: RunConfig) -> None:
        self.keeper(config).stop()

    def interpreted(self, config: RunConfig) -> Mapping[str, str]:
        if not self.kernels:
            return {}
        try:
            return self.keeper(config).process().ask({"do": "kernels"}, Kernels).interpreted
        except EngineFailed as error:
            raise DeviceError(f"engine {self.name}: {error}") from error

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        """Have a finding seen with interpreted kernels, too: they are the engine's, their definitions ours."""
        if not self.kernels or config.kernels == "interpreted":
            return None
        interpreted = config.model_copy(update={"kernels": "interpreted"})
        return Confirmation(interpreted, self.definition_is_wrong, CONFIRMED_STEPS_MAX)

    def edited(self, config: RunConfig) -> Edited:
        home = self.installed(config)
        if not config.engine_path or home is None:
            return NOTHING_EDITED
        return edited_over(Path(config.engine_path), home, self.package)

    def newly_run(self, config: RunConfig) -> Sequence[str]:
        keeper = self.keeper(config)
        if not (config.engine_path or config.fixes) or keeper.pid is None:
            return ()
        try:
            return keeper.process().ask({"do": "ran"}, Ran).functions
        except EngineFailed:
            return ()

    def installed(self, config: RunConfig) -> Path | None:
        return packages_of(self.home(config), self.package) if self.package else None

    def fixed(self, config: RunConfig) -> Applied:
        installed = self.installed(config) if config.fixes else None
        if installed is None:
            return Applied()
        laid_over = (Path(config.engine_path),) if config.engine_path else ()
        return _applied(self.package, config.fixes, (*laid_over, installed))

    def home(self, config: RunConfig) -> Path:
        """Return the folder of the installation that a configuration asks for."""
        raise NotImplementedError(f"engine {self.name} says nothing of its installation")

    def keeper(self, config: RunConfig) -> Keeper:
        """Return the keeper of the process that runs under a configuration."""
        raise NotImplementedError(f"engine {self.name} says nothing of its process")


@cache
def edited_over(tree: Path, installed: Path, package: str) -> Edited:
    """Return the functions of a package's sources in a tree that differ from those in the folder it is installed in."""
    edits = []
    for file in sorted((tree / package).rglob("*.py")):
        name = file.relative_to(tree).as_posix()
        source, before = file.read_bytes(), installed / name
        installed_source = before.read_bytes() if before.is_file() else None
        if source != installed_source:
            text = installed_source.decode(errors="replace") if installed_source is not None else None
            edits += edits_of(name, text, source.decode(errors="replace"))
    run = [edit for edit in edits if edit.change != "gone"]
    return Edited(
        tuple(edit.name for edit in run if not edit.is_compiled), tuple(edit.name for edit in run if edit.is_compiled)
    )
