"""Runs of vLLM on the simulated device, of which the asynchronous engine may be mutated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from benchmarks.vllm_determinism import Kept
from scenarios.events import Policy, Schedule
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.judge.outputs import Outputs
from workers.oracle.tape import Tapes
from workers.run.output_check import STEPS_MAX, OutputRun, text_of
from workers.targets.child.answers import Access, Nothing, Race, Reported
from workers.targets.child.keeper import Keeper
from workers.targets.child.messages import Message
from workers.targets.target import EngineFailed
from workers.targets.vllm.installation import HOME, ROOT, Installation
from workers.targets.vllm.target import Vllm

CHILD = "benchmarks.vllm_mutants.child"

A = TypeVar("A", bound=Value)


class Line(NamedTuple):
    """A line of the engine that orders work."""

    file: str
    line: int
    function: str


class Orders(Value):
    """The lines that ordered work: file, line, function, and what they call."""

    orders: tuple[tuple[str, int, str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed: outputs or how it broke off, the races that are not known, and the lines that ordered work.

    `num_known` counts the races that are known; `identity` is the first of its steps' identities that does not hold.
    """

    outputs: Outputs | str
    races: tuple[str, ...] = ()
    num_known: int = 0
    identity: str = ""
    orders: Mapping[Line, str] = field(default_factory=dict)


class Mutable(Kept):
    """A kind of engine that is vLLM's, in a process that mutates it when it is told to."""

    def __init__(self, kind: Vllm) -> None:
        installation = Installation(ROOT / HOME, kind.runner)
        super().__init__(kind, Keeper(kind.name, partial(installation.launch, "sim", child=CHILD)))

    def ask(self, message: Message, answer: type[A]) -> A:
        """Return the answer of the engine's process."""
        return self.keeper.process().ask(message, answer)

    def stop(self) -> None:
        """End the engine's process."""
        self.keeper.stop()


class Runs:
    """Runs of traces in one process after the other, asynchronous engines mutated as was said last."""

    def __init__(self, kind: Vllm) -> None:
        self.kind = Mutable(kind)
        self._mutation: Message = {}
        self._tapes = Tapes()
        self.mutate()

    def mutate(self, lines: Sequence[Line] = (), mistake: str = "") -> None:
        """Leave lines out, or make a mistake, in every engine that runs ahead from here on."""
        places = [[line.file, line.line] for line in lines]
        self._mutation = {"do": "mutate", "lines": places, "mistake": mistake}
        self.kind.ask(self._mutation, Nothing)

    def renew(self) -> None:
        """Go on in a new process: this one's memory may be spoilt."""
        self.kind.stop()
        self.kind.ask(self._mutation, Nothing)

    def seen(self, trace: Trace, policy: Policy) -> Seen:
        """Run a trace under a schedule."""
        scheduled = trace.model_copy(update={"schedule": Schedule(policy=policy)})
        try:
            run = OutputRun(scheduled, self._tapes, self.kind, races=True, steps=True)
        except EngineFailed as error:
            self.renew()
            return Seen(text_of(error))
        outputs: Outputs | str
        try:
            outputs = run.target.outputs() if run.to_end(STEPS_MAX) else "it does not end"
        except EngineFailed as error:
            outputs = f"{text_of(error)} in {error.where}"
        try:
            return self._told(run, outputs)
        finally:
            if isinstance(outputs, str):
                self.renew()
            else:
                run.target.close()

    def _told(self, run: OutputRun, outputs: Outputs | str) -> Seen:
        try:
            wrong = [] if isinstance(outputs, str) else [seen for seen in run.differences() if seen.plane != "races"]
            races = self.kind.ask({"do": "report"}, Reported).races
            orders = self.kind.ask({"do": "orders"}, Orders).orders
        except EngineFailed:
            return Seen(outputs)
        new = [race for race in races if not self.kind.is_known(race)]
        lines = {Line(file, line, function): "+".join(calls) for file, line, function, calls in orders}
        identity = "".join(f"{seen.variable}: {seen.actual}, expected {seen.expected}" for seen in wrong[:1])
        return Seen(outputs, tuple(map(_text, new)), len(races) - len(new), identity, lines)


def _text(race: Race) -> str:
    """Return a race in one line: buffer, and both lines."""
    return f"{race.memory}: {_side(race.first)} and {_side(race.second)}"


def _side(access: Access) -> str:
    return f"{access.function} ({access.where.removeprefix('vllm/')})"
