"""Target for engines in a child process; the process runs one trace after another.

A kind of engine derives from `ChildKind`; `workers.targets.child.inside` has the code of the process that answers. Any
misbehaviour of the process becomes an `EngineFailed` of the question it occurred in, at the latest after a timeout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from scenarios.events import Abort, AnyEvent, EndSession, Hook, Pausing, Submit
from scenarios.sampling import Output
from scenarios.spec import ENGINE, Value
from scenarios.trace import Trace
from workers.edits.fix import SelectedEdits, fixes_of, select_edits, select_fixes
from workers.edits.functions import edits_of
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Access, MissingOrder
from workers.targets.child.answers import Delivery, Harmed, Kernels, Nothing, Ran, Reported, Stepped
from workers.targets.child.installation import site_packages_of
from workers.targets.child.messages import Message
from workers.targets.child.process import INTERRUPTS, EngineProcess, EngineRaised, Keeper
from workers.targets.child.releases import is_older
from workers.targets.target import (
    NOTHING_EDITED,
    SEEN,
    Confirmation,
    DeviceError,
    EditedFunctions,
    EngineFailed,
    Progress,
    RunConfig,
    Target,
    TargetKind,
    Watch,
)

_DEVICES = {
    "sim": "sim (streams and pinned memory, simulated)",
    "cuda": "cuda (a GPU, on which a schedule delays streams)",
}

# A step with interpreted kernels takes about a second.
CONFIRMED_STEPS_MAX = 128

A = TypeVar("A", bound=Value)


@cache
def _matching_fixes(package: str, names: str, roots: tuple[Path, ...]) -> SelectedEdits:
    """Return the edits of the selected fixes, and which fixes do not match the sources."""
    return select_edits(select_fixes(fixes_of(package), names), roots)


# Finish reasons of a part after which its session continues.
_CONTINUES_AFTER = ("stop", "length")


@dataclass(slots=True, eq=False)
class _SessionProgress:
    """State of a streaming session: its `current` request, and the parts that wait.

    A streaming session is a sequence of requests, its parts: a part's prompt tokens are appended to all tokens of the
    part before, without its last output token. No part is added once the session `is_over`.
    """

    current: str
    waiting: list[str] = field(default_factory=list)
    is_over: bool = False


class ChildTarget(Target):
    """Runs one trace on an engine in a child process, by messages.

    Between steps it collects submits, aborts and other events, and sends them with the next step. Each answer has the
    output tokens of that step and what the scheduler, model runner and drafter have shown.
    """

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
        self._seen: list[EngineRecord] = []
        self._writers: dict[tuple[int, str], tuple[Access, ...]] = {}
        self._sessions: dict[str, _SessionProgress] = {}
        # Without an `end_session` event, a session ends with its last request in the trace: request -> session.
        last = {submit.session: submit.request for submit in trace.submitted() if submit.session is not None}
        ended = {event.session for event in trace.events if isinstance(event, EndSession)}
        self._last_parts = {request: session for session, request in last.items() if session not in ended}
        opened = {"spec": trace.spec.model_dump_json(), "schedule": trace.schedule.model_dump_json()}
        self._ask({"do": "open", **opened, "races": watch.races, "steps": watch.steps, "writers": watch.blame}, Nothing)

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        assert script == [], "draft tokens of an engine in a process of its own are not scripted"
        before = self._delivered.get(event.request)
        if event.session is not None:
            self._add_session_input(event, event.session)
        elif before is None or before.finish_reason is not None:
            self._expect_output(event.request)
            self._pending.append(event.model_dump(mode="json"))

    def _expect_output(self, request: str) -> None:
        """Create the empty output of an accepted request."""
        self._num_requests += 1
        self._delivered[request] = Output((), None)

    def _add_session_input(self, event: Submit, session: str) -> None:
        """Send a streaming session's next part, unless the session has ended.

        After the trace's last request of the session, end the session.
        """
        parts = self._sessions.get(session)
        if parts is None:
            self._expect_output(event.request)
            self._sessions[session] = _SessionProgress(event.request)
        elif parts.is_over:
            return
        else:
            parts.waiting.append(event.request)
        self._pending.append(event.model_dump(mode="json"))
        self._advance_sessions()
        if event.request in self._last_parts:
            self.apply(EndSession(tick=event.tick, at=event.at, session=session))

    def _advance_sessions(self) -> None:
        """Begin the next part of each streaming session whose current part has ended.

        A session is over if its current part was aborted or failed.
        """
        for parts in self._sessions.values():
            reason = self._delivered[parts.current].finish_reason
            if reason not in (None, *_CONTINUES_AFTER):
                parts.is_over = True
                parts.waiting.clear()
            elif reason is not None and parts.waiting:
                parts.current = parts.waiting.pop(0)
                self._expect_output(parts.current)

    def abort(self, event: Abort) -> None:
        request = self._delivered.get(event.request)
        if request is not None and request.finish_reason is None:
            self._delivered[event.request] = request._replace(finish_reason="abort")
            self._pending.append(event.model_dump(mode="json"))
            # A part that is submitted in the same tick comes too late.
            self._advance_sessions()

    def apply(self, event: AnyEvent) -> None:
        match event:
            case EndSession(session=session) if session in self._sessions:
                self._sessions[session].is_over = True
            case Pausing(mode="abort"):
                # The pause aborts the current parts; their finish reasons are delivered later.
                for parts in self._sessions.values():
                    parts.is_over |= self._delivered[parts.current].finish_reason is None
            case _:
                pass
        self._pending.append(event.model_dump(mode="json"))

    def step(self, happen: Callable[[Hook], None]) -> None:
        """Run one step in the process; without requests and events, do nothing.

        Each event names the point of the step at which it takes effect; the engine's process applies it there.
        """
        happen("before_schedule")
        if self.drained():
            return
        happen("before_process")
        events, self._pending = self._pending, []
        answer = self._ask({"do": "step", "events": events}, Stepped)
        for delivery in answer.deliveries:
            self._deliver(delivery)
        self._advance_sessions()
        self._is_drained = answer.drained
        self.probes = answer.probes
        self._store_records(answer.seen)

    def _deliver(self, delivery: Delivery) -> None:
        request = self._delivered.get(delivery.request)
        if request is None:
            self._has_failed = True
            raise self._process.refuse(f"delivered to {delivery.request!r}, which was never submitted")
        self._num_outputs += 1
        if request.finish_reason is None or delivery.is_late:
            self._delivered[delivery.request] = request.with_more(delivery.output)

    def drained(self) -> bool:
        return self._is_drained and not self._pending

    def outputs(self) -> dict[str, Output]:
        return dict(self._delivered)

    def progress(self) -> Progress:
        return Progress(self._num_requests, self._num_outputs, self._depth - 1)

    def take_engine_records(self) -> list[EngineRecord]:
        taken, self._seen = self._seen, []
        return taken

    def last_writers(self, step: int, variable: str) -> tuple[Access, ...]:
        return self._writers.get((step, variable), ())

    def _store_records(self, seen: tuple[EngineRecord, ...]) -> None:
        """Store received engine records, and the last writers of each variable.

        If a variable was observed several times in a step, its last writers are kept newest first.
        """
        self._seen += seen
        for each in (each for each in seen if each.of == ENGINE):
            for variable, writers in each.writers.items():
                before = self._writers.get((each.step, variable), ())
                self._writers[each.step, variable] = tuple(dict.fromkeys((*writers, *before)))

    def drain(self) -> None:
        """Run all queued device work in the process; fetch its races if they are detected."""
        if self._watch.races or self._watch.steps:
            self._reported = self._ask({"do": "report"}, Reported)
            self._store_records(self._reported.seen)

    def races(self) -> tuple[MissingOrder, ...]:
        """Return the races of the run; with `watch.blame` the first one says whether it is harmful.

        To find that out the process runs the trace again, which needs an engine that has drained.
        """
        if self._reported is None:
            self.drain()
        found = [race.order for race in self._reported.races] if self._reported is not None else []
        if found and self._watch.blame and self.drained() and not self._has_failed:
            harm = self._ask({"do": "harm", "race": 0}, Harmed).harm
            found[0] = found[0].model_copy(update={"harm": harm})
        return tuple(found)

    def close(self) -> None:
        """End the trace; the process keeps the engine unless requests are left.

        Raises:
            EngineFailed: this failed, and nothing had failed before.
        """
        if not self._has_failed:
            self._ask({"do": "close"}, Nothing)

    def _ask(self, question: Message, kind: type[A]) -> A:
        try:
            return self._process.ask(question, kind)
        except (EngineFailed, *INTERRUPTS) as error:
            # The process has abandoned the trace or has ended.
            self._has_failed = True
            if isinstance(error, EngineRaised):
                self._store_records(error.seen)
            raise


class ChildKind(TargetKind):
    """Properties of an engine that runs in a child process: limits, versions, the process.

    `keeper` returns the keeper of that process. An engine that is a package of its own is installed in `home`.
    `definition_is_wrong` is the message for a finding that occurs only with our definitions of the engine's kernels.
    Files with names that start with one of `stand_ins` replace GPU code on the simulated device, e.g. attention over
    the KV cache.
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
            # Remains of an engine that failed while it was created could break every later one.
            keeper.stop()
            raise

    def renew(self, config: RunConfig) -> bool:
        """Make the process discard its engines; if that fails, end the process."""
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

    def released(self, config: RunConfig) -> RunConfig | None:
        if not config.engine_path:
            return None
        # A fix that does not match the overlay is not applied to the release either.
        fixes = ",".join(self.fixed(config).names)
        return config.model_copy(update={"fixes": fixes, **dict.fromkeys(("engine_path", *SEEN), "")})

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        """Return the run configuration that confirms a finding: all kernels interpreted; or None.

        These are the engine's own, while the definitions that replaced them are ours.
        """
        if not self.kernels or config.kernels == "interpreted":
            return None
        interpreted = config.model_copy(update={"kernels": "interpreted"})
        return Confirmation(interpreted, self.definition_is_wrong, CONFIRMED_STEPS_MAX)

    def edited(self, config: RunConfig) -> EditedFunctions:
        home = self.installed(config)
        if not config.engine_path or home is None:
            return NOTHING_EDITED
        return edited_functions(Path(config.engine_path), home, self.package)

    def newly_run(self, config: RunConfig) -> Sequence[str]:
        keeper = self.keeper(config)
        if not (config.engine_path or config.fixes) or keeper.pid is None:
            return ()
        try:
            return keeper.process().ask({"do": "ran"}, Ran).functions
        except EngineFailed:
            return ()

    def installed(self, config: RunConfig) -> Path | None:
        return site_packages_of(self.home(config), self.package) if self.package else None

    def fixed(self, config: RunConfig) -> SelectedEdits:
        installed = self.installed(config) if config.fixes else None
        if installed is None:
            return SelectedEdits()
        laid_over = (Path(config.engine_path),) if config.engine_path else ()
        selected, version = _matching_fixes(self.package, config.fixes, (*laid_over, installed)), self.version(config)
        fixed_in = {name: fix.fixed_in for name, fix in fixes_of(self.package).items() if fix.fixed_in}
        # A bug that the release does not have needs no fix.
        refused = {
            name: why
            for name, why in selected.refused.items()
            if name not in fixed_in or is_older(version, fixed_in[name])
        }
        return replace(selected, refused=refused)

    def home(self, config: RunConfig) -> Path:
        """Return the virtual environment of the engine that a run configuration selects."""
        raise NotImplementedError(f"engine {self.name} must implement ChildKind.home")

    def keeper(self, config: RunConfig) -> Keeper:
        """Return the object that starts and keeps the engine process of a configuration."""
        raise NotImplementedError(f"engine {self.name} must implement ChildKind.keeper")


@cache
def edited_functions(tree: Path, installed: Path, package: str) -> EditedFunctions:
    """Return the functions that differ between a source tree and an installed package.

    `installed` is the folder in which the package is installed.
    """
    edits = []
    for file in sorted((tree / package).rglob("*.py")):
        name = file.relative_to(tree).as_posix()
        source, before = file.read_bytes(), installed / name
        installed_source = before.read_bytes() if before.is_file() else None
        if source != installed_source:
            text = installed_source.decode(errors="replace") if installed_source is not None else None
            edits += edits_of(name, text, source.decode(errors="replace"))
    run = [edit for edit in edits if edit.change != "gone"]
    return EditedFunctions(
        tuple(edit.name for edit in run if not edit.is_compiled), tuple(edit.name for edit in run if edit.is_compiled)
    )
