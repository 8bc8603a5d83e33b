"""Runs of vLLM on the simulated device, of which the asynchronous engine may be mutated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.conformance.vllm_determinism import Kept
from scenarios.events import Policy, Schedule
from scenarios.trace import Trace
from workers.judge.outputs import Outputs
from workers.oracle.tape import Tapes
from workers.run.output_check import STEPS_MAX, OutputRun, text_of
from workers.targets.child.messages import Message
from workers.targets.target import EngineFailed
from workers.targets.vllm.target import HOME, ROOT, Keeper, Vllm, is_known_race

CHILD = "benchmarks.power.vllm_mutants.child"


class Line(NamedTuple):
    """A line of the engine that orders work."""

    file: str
    line: int
    function: str


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
        super().__init__(kind, Keeper(ROOT / HOME, "", "sim", CHILD, runner=kind.runner))

    def ask(self, message: Message) -> Message:
        """Return the answer of the engine's process."""
        return self.keeper.process().ask(message)

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
        self.kind.ask(self._mutation)

    def renew(self) -> None:
        """Go on in a new process: this one's memory may be spoilt."""
        self.kind.stop()
        self.kind.ask(self._mutation)

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
            races = self.kind.ask({"do": "report"})["races"]
            orders = self.kind.ask({"do": "orders"})["orders"]
        except EngineFailed:
            return Seen(outputs)
        new = [race for race in races if not is_known_race(race)]
        lines = {Line(file, line, function): "+".join(calls) for file, line, function, calls, _ in orders}
        identity = "".join(f"{seen.variable}: {seen.actual}, expected {seen.expected}" for seen in wrong[:1])
        return Seen(outputs, tuple(map(_text, new)), len(races) - len(new), identity, lines)


def _text(race: Message) -> str:
    """Return a race in one line: buffer, and both lines."""
    first, second = (f"{race[side]['function']} ({_place(race[side]['where'])})" for side in ("first", "second"))
    return f"{race['memory']}: {first} and {second}"


def _place(where: str) -> str:
    return where.removeprefix("vllm/")
