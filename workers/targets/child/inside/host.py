"""Host of an engine's process: answers messages, one session at a time on engines that are kept."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from scenarios.events import AnyEvent, Policy, Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.inside.notes import notes_of_process
from workers.targets.child.inside.overlay import from_packages_on
from workers.targets.child.inside.session import Engines, Session
from workers.targets.child.messages import Message

if TYPE_CHECKING:
    # They load PyTorch, which not every engine has.
    from workers.targets.child.inside.gpu import Gpu
    from workers.targets.child.inside.simulated_device import SimulatedDevice

# Under these a race is looked for harm; a trace may then take so many steps more.
_ORDERS: tuple[Policy, ...] = ("eager", "lazy")
_STEPS_MORE = 100
# Files of this project, and how many callers of a failure's place are told.
_OWN = f"{Path(__file__).resolve().parents[3]}/"
_CALLERS_MAX = 5
_TEXT_MAX = 20_000
_EVENTS: TypeAdapter[list[AnyEvent]] = TypeAdapter(list[AnyEvent])


class Host:
    """Answers messages about `engines`, on the device of this process if schedules mean something there.

    `interpreted` returns why kernels do not run as their definitions, by name.
    """

    def __init__(
        self,
        engines: Engines,
        device: "SimulatedDevice | Gpu | None" = None,
        interpreted: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.engines = engines
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
                known = "open, step, report, harm, close, kernels, ran and forget"
                raise ValueError(f"message {what!r}; known are {known}")

    def last_seen(self) -> list[Message]:
        """Return what the session has observed since the last answer, as far as it still can after an exception."""
        try:
            return self.session.seen() if self.session is not None else []
        except Exception:
            # Whatever has broken may be what observes.
            return []

    def abandon(self) -> None:
        """Give up the session, and its engine with it: whatever went wrong may go on."""
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
        """Return the harm of a race of the last report: run the last session again, under eager and under lazy."""
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
        """Run a session again under a schedule; return what each task read and wrote."""
        self.open(spec, schedule, digests=True)
        for events in happened:
            self._step(events)
        for _ in range(_STEPS_MORE):
            if self.session is not None and not self.session.drained():
                self._step([])
        return self._simulated().digests()

    def _simulated(self) -> "SimulatedDevice":
        """Return the simulated device, whose tasks and races alone are known."""
        assert hasattr(self._device, "race"), "races are the simulated device's"
        return cast("SimulatedDevice", self._device)


def loses_device(error: BaseException | None) -> bool:
    """Tell whether an exception is of a GPU's context, in which nothing of this process can run any more."""
    seen: set[int] = set()
    # An exception can be its own cause.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if type(error).__name__ == "AcceleratorError" or "CUDA error" in _text_of(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _text_of(error: BaseException) -> str:
    """Return what an exception says, within bounds and as Unicode; code of the engine runs for that."""
    try:
        text = str(error)
    except Exception as another:
        return f"its text raises {type(another).__name__}"
    return text[:_TEXT_MAX].encode(errors="backslashreplace").decode()


def failure(error: BaseException) -> Message:
    """Return how an exception is told: what it says, and where it was raised."""
    # No line of a source file is read: its name may be anything.
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    # Of what raises within torch, who called it there says more.
    where = next((frame for frame in reversed(frames) if "/torch/" not in frame.filename), frames[-1])
    above = [frame for frame in reversed(frames[: frames.index(where)]) if _is_of_engine(frame)]
    # Of the frames in one file the innermost says most.
    by_file = {frame.filename: frame for frame in reversed(above) if frame.filename != where.filename}
    callers = [_place(frame) for frame in above if frame in by_file.values()][:_CALLERS_MAX]
    # A path of this machine belongs to no finding, nor does advice behind an error of CUDA.
    is_last = loses_device(error)
    text = _text_of(error)
    text = from_packages_on(text.partition("\n")[0] if is_last else text)
    return {"error": f"{type(error).__name__}: {text}", "where": _place(where), "callers": callers, "is_last": is_last}


def _place(frame: traceback.FrameSummary) -> Message:
    name, file = (text.encode(errors="backslashreplace").decode() for text in (frame.name, frame.filename))
    return {"function": name, "file": file.rsplit("/", 1)[-1], "line": frame.lineno or 0}


def _is_of_engine(frame: traceback.FrameSummary) -> bool:
    """Tell whether a frame is neither of PyTorch nor of this project."""
    return "/torch/" not in frame.filename and not frame.filename.startswith(_OWN)
