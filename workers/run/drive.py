"""Driver of one engine: owns ticks and events, and hands each event over at its place of a step."""

from collections.abc import Sequence

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, AnyEvent, Place, Submit
from scenarios.trace import Trace
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import terms_of
from workers.judge.contracts.judge import Deliveries
from workers.oracle.incremental_tape import script_of
from workers.oracle.tape import Tapes
from workers.targets.target import Target


class EventQueue:
    """Events of a trace by tick and place, each with the number of submits before it."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.last_tick = max((event.tick for event in events), default=-1)
        self._events: dict[tuple[int, Place], list[tuple[AnyEvent, int]]] = {}
        num_submits = 0
        for event in events:
            self._events.setdefault((event.tick, event.at), []).append((event, num_submits))
            num_submits += isinstance(event, Submit)

    def at(self, tick: int, place: Place) -> Sequence[tuple[AnyEvent, int]]:
        """Return what happens at a place of a step, in order."""
        return self._events.get((tick, place), ())


class Drive:
    """A target under the events of its trace; `tick` counts its steps, `deliveries` knows what came of each submit."""

    def __init__(
        self, trace: Trace, target: Target, scripts: Sequence[list[int]], words_from_prompt: bool = True
    ) -> None:
        self.tick = 0
        self.deliveries = Deliveries(terms_of(trace, words_from_prompt))
        self.events = EventQueue(trace.events)
        self.target = target
        self._scripts = scripts

    def drained(self) -> bool:
        """Tell whether nothing is left to do: no event to come, no request alive, no step in flight."""
        return self.tick > self.events.last_tick and self.target.drained()

    def breach(self) -> Breach | None:
        """Return the first contract that the target has broken, once it has drained."""
        return self.deliveries.at_end(self.target.outputs())

    def step(self) -> None:
        """Let the engine do one step, with the events of its tick."""
        self.target.step(self._happen)
        self.tick += 1

    def _happen(self, place: Place) -> None:
        for event, submit in self.events.at(self.tick, place):
            match event:
                case Submit():
                    self._submit(event, submit)
                case Abort():
                    self.deliveries.aborted(event, self.target.outputs().get(event.request))
                    self.target.abort(event)
                case _:
                    self.target.apply(event)

    def _submit(self, event: Submit, submit: int) -> None:
        is_again, name = self.deliveries.is_known(event.request), event.request
        before = self.target.outputs().get(name) if is_again else None
        self.target.submit(event, submit, self._scripts[submit])
        self.deliveries.submitted(event, before, self.target.outputs().get(name) if is_again else None)


def scripts_of(trace: Trace, tapes: Tapes, capabilities: Capabilities) -> list[list[int]]:
    """Return the script of each submit of a trace; an empty one for an engine whose drafts are not scripted."""
    submits = trace.submits()
    if not capabilities.scripts_drafts:
        return [[] for _ in submits]
    return [script_of(event, trace.spec, tapes) for event in submits]
