"""Command loop of an engine's process: open a trace, run its steps, report races."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import TypeAdapter

from scenarios.events import AnyEvent, Policy, Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.inside.notes import notes_of_process
from workers.targets.child.inside.overlay import relative_to_packages
from workers.targets.child.inside.session import Engines, Session
from workers.targets.child.messages import Message

if TYPE_CHECKING:
    # It imports PyTorch, which not every engine has.
    from workers.targets.child.inside.simulated_device import SimulatedDevice

# The policies that show whether a race is harmful, and how many further steps the trace may take under them.
_ORDERS: tuple[Policy, ...] = ("eager", "lazy")
_STEPS_MORE = 100
# Prefix of this project's files, and the number of callers in a failure message.
_OWN = f"{Path(__file__).resolve().parents[3]}/"
_CALLERS_MAX = 5
_TEXT_MAX = 20_000
_EVENTS: TypeAdapter[list[AnyEvent]] = TypeAdapter(list[AnyEvent])


class Device(Protocol):
    """What a trace's schedule takes effect on: a simulated device, a GPU, or the processes of several ranks."""

    def idle(self) -> None:
        """End the schedule of the trace before, e.g. while an engine is created."""

    def begin(
        self, memory: Mapping[str, object], schedule: Schedule, *, races: bool, digests: bool, writers: bool
    ) -> None:
        """Begin a trace under a schedule; `memory` has the objects whose tensors are named."""

    def step(self, tick: int) -> None:
        """Set the number of the next step."""

    def abandon(self) -> None:
        """Drop the work of an engine that has failed."""

    def report(self) -> Message:
        """Return the races of the trace, and counts."""


class Host:
    """Executes the parent's commands; runs one trace at a time on an engine of `engines`.

    A schedule takes effect on `device`; without one, schedules have no effect. `interpreted` returns the reason why a
    kernel is interpreted instead of replaced by its definition, by kernel name. `failed` returns the answer for an
    exception, if other processes of the engine may know more about it.
    """

    def __init__(
        self,
        engines: Engines,
        device: Device | None = None,
        interpreted: Callable[[], Mapping[str, str]] = dict,
        failed: Callable[[BaseException], Message] | None = None,
    ) -> None:
        self.engines = engines
        self.failure = failed if failed is not None else failure
        self._interpreted = interpreted
        self.session: Session | None = None
        self._device = device
        self._spec = EngineSpec()
        self._happened: list[Sequence[AnyEvent]] = []

    def answer(self, message: Message) -> Message:
        match message["do"]:
            case "open":
                schedule = Schedule.model_validate_json(message["schedule"])
                spec = EngineSpec.model_validate_json(message["spec"])
                self.open(spec, schedule, races=message["races"], steps=message["steps"], writers=message["writers"])
                return {}
            case "step":
                return self._step(_EVENTS.validate_python(message["events"]))
            case "report":
                return self._report()
            case "close":
                self.close()
                return {}
            case "harm":
                return {"harm": self._harm(message["race"])}
            case "kernels":
                return {"interpreted": dict(self._interpreted())}
            case "ran":
                notes = notes_of_process()
                return {"functions": notes.ran() if notes is not None else []}
            case "forget":
                self.engines.forget()
                return {}
            case what:
                known = "open, step, report, harm, close, kernels, ran, forget"
                raise ValueError(f"message {what!r}; expected one of {known}")

    def last_seen(self) -> list[Message]:
        """Return the engine records of a failed step; [] if reading them fails, too.

        They show what the scheduler, model runner and drafter did in the step that failed.
        """
        try:
            return self.session.seen() if self.session is not None else []
        except Exception:
            # The observing code itself may have raised the exception.
            return []

    def abandon(self) -> None:
        """Drop the trace and its engine after an exception.

        The engine's scheduler and model runner may be in any state, so they are not used again.
        """
        self.session = None
        if self._device is not None:
            self._device.abandon()

    def open(
        self,
        spec: EngineSpec,
        schedule: Schedule,
        *,
        races: bool = False,
        steps: bool = False,
        digests: bool = False,
        writers: bool = False,
    ) -> None:
        assert self.session is None, "a session is open"
        if self._device is not None:
            self._device.idle()
        self.session = self.engines.open(spec, steps)
        self._spec, self._happened = spec, []
        if self._device is not None:
            self._device.begin(self.session.memory, schedule, races=races, digests=digests, writers=writers)

    def close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()

    def _step(self, events: Sequence[AnyEvent]) -> Message:
        session = self.session
        assert session is not None, "no session is open"
        tick = len(self._happened)
        self._happened.append(events)
        for event in events:
            session.happen(event)
        if self._device is not None:
            self._device.step(tick)
        deliveries = [delivery.model_dump() for delivery in session.step()]
        shown = {"drained": session.drained(), "seen": session.seen(), "probes": dict(session.probes)}
        return {"deliveries": deliveries, **shown}

    def _report(self) -> Message:
        report = self._device.report() if self._device is not None else {"races": [], "counts": {}}
        if self.session is None:
            return {**report, "seen": []}
        self.session.ended()
        return {**report, "seen": self.session.seen()}

    def _harm(self, number: int) -> Message:
        """Run the trace in two more task orders; return whether race `number` changes results.

        The last session runs twice again, under `eager` and under `lazy`; the race is harmful if the results differ.
        """
        device = self._simulated()
        race, happened, spec = device.race(number), self._happened, self._spec
        self.close()
        runs: list[Any] = []
        for policy in _ORDERS:
            try:
                runs.append(self._again(spec, Schedule(policy=policy), happened))
            except Exception as error:
                self.abandon()
                return {"kind": "harmful", "policy": policy, "error": failure(error)["error"]}
            self.close()
        return device.harm(race, *runs)

    def _again(self, spec: EngineSpec, schedule: Schedule, happened: Sequence[Sequence[AnyEvent]]) -> Any:
        """Rerun the trace under a schedule; return hashes of each task's reads and writes."""
        self.open(spec, schedule, digests=True)
        for events in happened:
            self._step(events)
        for _ in range(_STEPS_MORE):
            if self.session is not None and not self.session.drained():
                self._step([])
        return self._simulated().digests()

    def _simulated(self) -> "SimulatedDevice":
        """Return the simulated device; raise on a GPU, which has no device tasks."""
        assert hasattr(self._device, "race"), "races are the simulated device's"
        return cast("SimulatedDevice", self._device)


def loses_device(error: BaseException | None) -> bool:
    """Return whether an exception means that the CUDA context of this process is lost."""
    seen: set[int] = set()
    # A chain of exceptions can be a cycle.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if type(error).__name__ == "AcceleratorError" or "CUDA error" in _text_of(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _text_of(error: BaseException) -> str:
    """Return an exception's text as valid Unicode, cut to `_TEXT_MAX` characters.

    This calls the exception's `__str__`, which may be code of the engine.
    """
    try:
        text = str(error)
    except Exception as another:
        return f"its text raises {type(another).__name__}"
    return text[:_TEXT_MAX].encode(errors="backslashreplace").decode()


def failure(error: BaseException) -> Message:
    """Return the answer for an exception: its text, source location and callers."""
    # `lookup_lines` stays false: the file name of a frame can be any text, so no file is opened.
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    # If torch raised the exception, the frame that called torch is more useful.
    where = next((frame for frame in reversed(frames) if "/torch/" not in frame.filename), frames[-1])
    above = [frame for frame in reversed(frames[: frames.index(where)]) if _is_of_engine(frame)]
    # If several frames are in one file, the innermost one is the most useful.
    by_file = {frame.filename: frame for frame in reversed(above) if frame.filename != where.filename}
    callers = [_place(frame) for frame in above if frame in by_file.values()][:_CALLERS_MAX]
    # A finding contains neither paths of this machine nor the advice that CUDA appends to its errors.
    is_last = loses_device(error)
    text = _text_of(error)
    text = relative_to_packages(text.partition("\n")[0] if is_last else text)
    return {"error": f"{type(error).__name__}: {text}", "where": _place(where), "callers": callers, "is_last": is_last}


def _place(frame: traceback.FrameSummary) -> Message:
    name, file = (text.encode(errors="backslashreplace").decode() for text in (frame.name, frame.filename))
    return {"function": name, "file": file.rsplit("/", 1)[-1], "line": frame.lineno or 0}


def _is_of_engine(frame: traceback.FrameSummary) -> bool:
    """Return whether a stack frame is in the engine's code, not in PyTorch's or ours."""
    return "/torch/" not in frame.filename and not frame.filename.startswith(_OWN)
