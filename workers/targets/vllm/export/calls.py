"""Calls of driver functions (`add_request`, `step` ...) for the events of a trace."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from scenarios.events import (
    HOOKS,
    Abort,
    AnyEvent,
    DisturbTransfer,
    EndSession,
    Pause,
    Preempt,
    ResetPrefixCache,
    Submit,
)
from scenarios.trace import Trace
from workers.targets.child.export.text import Code, call, literal, wrapped
from workers.targets.child.request_features import RequestFeatures
from workers.targets.exported import ExportError
from workers.targets.vllm.export.level import Level
from workers.targets.vllm.export.options import sampling_options

# A list literal of fewer characters is repeated instead of stored in a variable.
SHORT = 60
# Pause state of the scheduler by the event's mode; a pause that aborts requests has no call.
_STATES: Mapping[str, str] = {"keep": "PauseState.PAUSED_ALL", "wait": "PauseState.PAUSED_NEW"}


class Calls(NamedTuple):
    """Lines of Python source that call driver functions, with the functions' names."""

    lines: list[str]
    uses: set[str]


class Caller:
    """Writes the driver calls of one trace, on the variable `engine` or `scheduler`."""

    def __init__(self, trace: Trace, level: Level, features: RequestFeatures) -> None:
        self._trace, self._level, self._features = trace, level, features
        self._tick = 0
        # The tick at which the current pause ends, and whether no event has happened since the pause began.
        self._paused_until: int | None = None
        self._is_idle = False
        self._lines: list[str] = []
        self._uses: set[str] = set()
        self.ids = ids_of(trace)
        ended = {event.session for event in trace.events if isinstance(event, EndSession)}
        # If no event ends a session, its last part does.
        self._last_parts = {part.session: part for part in trace.submitted() if part.session not in ended}
        self._added: set[str] = set()
        prompts = Counter(submit.prompt for submit in trace.submits())
        # Prompts of several requests, each with its variable's name, or "" before the variable exists.
        self._shared: dict[object, str] = {prompt: "" for prompt, count in prompts.items() if count > 1}

    def calls(self) -> Calls:
        """Return source lines for all events of the trace, then for steps until no request is left.

        Raises:
            ExportError: an event has no call.
        """
        for event in sorted(self._trace.events, key=lambda each: (each.tick, HOOKS.index(each.at))):
            if event.tick < self._tick:
                raise ExportError(f"tick {event.tick}: {event.do} in the step of a preemption has no call")
            self._step_to(event.tick)
            self._happen(event)
            self._is_idle = isinstance(event, Pause)
        if self._paused_until is not None:
            self._step_to(self._paused_until)
        self._call("drain")
        return Calls(self._lines, self._uses)

    def _happen(self, event: AnyEvent) -> None:
        is_engine = self._level == "engine"
        if event.at != "before_schedule":
            raise ExportError(f"tick {event.tick}: {event.do} at {event.at}; an exported test has events between steps")
        match event:
            case Submit():
                self._submit(event)
            case Abort(request=name) if is_engine:
                self._lines += [f'engine.abort_requests(["{self._id_of(name)}"])']
            case Preempt(request=name):
                self._call("preempt", self._id_of(name))
                self._tick += 1
            case DisturbTransfer(request=name, of="load", how="fail", block=block) if not is_engine or not block:
                scheduler = "engine.scheduler" if is_engine else "scheduler"
                self._lines += [f'{scheduler}.connector.to_lose["{self._id_of(name)}"] = {block}']
            case ResetPrefixCache(running=running):
                options = {"reset_running_requests": True} if running else {}
                self._lines += call(f"{self._level}.reset_prefix_cache", (), options)
            case Pause(mode=mode, clear_cache=is_clearing, ticks=ticks) if mode in _STATES:
                if self._paused_until is not None:
                    raise ExportError(f"tick {event.tick}: pause within a pause; an exported test has one at a time")
                self._call("pause", Code(_STATES[mode]), clear_cache=is_clearing)
                self._paused_until = event.tick + ticks
            case EndSession(session=session):
                part = next(submit for submit in self.ids if submit.session == session)
                self._call("end_session", self.ids[part])
            case _:
                raise ExportError(f"tick {event.tick}: no call of an exported test stands for event {event.do}")

    def _submit(self, event: Submit) -> None:
        assert isinstance(event.prompt, tuple), "the trace is explicit"
        options = sampling_options(event, self._trace.spec.vocab_size, self._features)
        if event.priority:
            raise ExportError(f"request {event.request}: an exported test sets no priority")
        if event.session is not None:
            options = {"resumable": True, **options}
        request_id = self.ids[event]
        self._call("add_request", request_id, self._prompt(event.prompt), **options)
        if event.params.grammar:
            self._uses.add("grammar")
        if event.params.grammar and request_id not in self._added:
            self._call("wait_for_grammar", request_id)
        self._added.add(request_id)
        if event.session is not None and event is self._last_parts.get(event.session):
            self._call("end_session", request_id)

    def _prompt(self, prompt: tuple[int, ...]) -> object:
        """Return a prompt as source: its tokens, or the variable of a shared prompt."""
        if prompt not in self._shared or len(literal(prompt)) < SHORT:
            return prompt
        if not self._shared[prompt]:
            number = sum(map(bool, self._shared.values()))
            self._shared[prompt] = f"prompt_{number + 1}" if number else "prompt"
            self._lines += wrapped(prompt, f"{self._shared[prompt]} = ")
        return Code(self._shared[prompt])

    def _id_of(self, name: str) -> str:
        """Return the engine request id of the last request added under this name."""
        found = [request_id for submit, request_id in self.ids.items() if submit.request == name]
        taken = [request_id for request_id in found if request_id in self._added]
        if not taken:
            raise ExportError(f"tick {self._tick}: no request named {name} has been added")
        return taken[-1]

    def _step_to(self, tick: int) -> None:
        """Add calls of engine steps up to a tick, and of `resume` where a pause ends."""
        if self._paused_until is not None and self._paused_until <= tick:
            until, self._paused_until = self._paused_until, None
            self._step_to(until)
            self._call("resume")
            self._is_idle = False
        if self._is_idle:
            # Steps during a pause have no effect until another event happens.
            self._tick = max(self._tick, tick)
            return
        count = tick - self._tick
        if count > 1:
            self._lines.append(f"for _ in range({count}):")
            self._lines.append(f"    step({self._level})")
            self._uses.add("step")
        elif count == 1:
            self._call("step")
        self._tick = max(self._tick, tick)

    def _call(self, name: str, *arguments: object, **options: object) -> None:
        self._lines += call(name, (Code(self._level), *arguments), options)
        self._uses.add(name)


def ids_of(trace: Trace) -> Mapping[Submit, str]:
    """Return the engine request id of each submit event.

    It is the request's name, with a number if several requests share the name. All parts of a session have the id of
    its first part.
    """
    names = Counter(submit.request for submit in trace.submits())
    seen: Counter[str] = Counter()
    first: dict[str, str] = {}
    found: dict[Submit, str] = {}
    for submit in trace.submitted():
        seen[submit.request] += 1
        own = submit.request if names[submit.request] == 1 else f"{submit.request}-{seen[submit.request]}"
        found[submit] = own if submit.session is None else first.setdefault(submit.session, own)
    return found
