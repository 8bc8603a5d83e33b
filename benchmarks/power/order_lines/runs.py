"""Runs of an engine on the simulated device, mutated if the run is asynchronous."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from scenarios.events import Policy, Schedule
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.judge.drafter_inputs import DrafterInputs, Proposals, proposals_of
from workers.judge.judge import End
from workers.judge.model_inputs import ModelInputs
from workers.judge.outputs import Outputs
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Access, Difference, MissingOrder
from workers.record.verdict import NotDrained
from workers.record.words import actual_text, expected_text, site_text
from workers.run.engine_run import Options, Run, error_text
from workers.targets.child.answers import Nothing, Reported
from workers.targets.child.messages import Message
from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.target import EngineFailed

A = TypeVar("A", bound=Value)


class Line(NamedTuple):
    """A source line of the engine that orders work, such as a stream wait."""

    file: str
    line: int
    function: str


class Studied(NamedTuple):
    """An engine whose order lines are studied, with the reasons for redundant lines."""

    kind: Callable[[], "Mutated"]
    redundant: Callable[[Mapping[Line, str]], Mapping[Line, str]]


class Orders(Value):
    """Order lines of a run by file, line and function, with the calls that they make."""

    orders: tuple[tuple[str, int, str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """Results of one run: outputs or the error, races, and the executed order lines.

    `identity` is the first violated identity of its steps; `proposals` are the draft tokens proposed after each prefix.
    """

    outputs: Outputs | str
    races: tuple[str, ...] = ()
    identity: str = ""
    orders: Mapping[Line, str] = field(default_factory=dict)
    proposals: Proposals = field(default_factory=dict)


class Mutated(ChildKind):
    """An engine in a process that leaves out source lines, or plants a mistake, on request."""

    kept: Keeper

    def ask(self, message: Message, answer: type[A]) -> A:
        """Send a message to the engine's process and return the answer."""
        return self.kept.process().ask(message, answer)

    def stop(self) -> None:
        """End the engine's process."""
        self.kept.stop()


class Runs:
    """Runs traces in one process; the last `mutate` applies to asynchronous engines."""

    def __init__(self, kind: Mutated) -> None:
        self.kind = kind
        self._mutation: Message = {}
        self._value_cache = ModelValueCache()
        self.mutate()

    def mutate(self, lines: Sequence[Line] = (), mistake: str = "") -> None:
        """Leave out lines, or plant a mistake, in every asynchronous engine from now on."""
        places = [[line.file, line.line] for line in lines]
        self._mutation = {"do": "mutate", "lines": places, "mistake": mistake}
        self.kind.ask(self._mutation, Nothing)

    def renew(self) -> None:
        """Start a new engine process: a mutant may have corrupted the memory of the old one."""
        self.kind.stop()
        self.kind.ask(self._mutation, Nothing)

    def seen(self, trace: Trace, policy: Policy) -> Seen:
        """Run a trace under a scheduling policy and return its results."""
        scheduled = trace.model_copy(update={"schedule": Schedule(policy=policy)})
        try:
            run = Run(scheduled, self._value_cache, Options(), self.kind)
        except EngineFailed as error:
            self.renew()
            return Seen(error_text(error))
        outputs: Outputs | str
        try:
            ended = run.to_end()
            outputs = "the run does not end" if isinstance(ended, NotDrained) else run.target.outputs()
        except EngineFailed as error:
            outputs = f"{error_text(error)} in {site_text(error.where)}"
        try:
            return self._results(run, outputs)
        finally:
            if isinstance(outputs, str):
                self.renew()
            else:
                run.target.close()

    def _results(self, run: Run, outputs: Outputs | str) -> Seen:
        try:
            wrong = None if isinstance(outputs, str) else _broken_identity(run)
            races = self.kind.ask({"do": "report"}, Reported).races
            orders = self.kind.ask({"do": "orders"}, Orders).orders
        except EngineFailed:
            return Seen(outputs)
        lines = {Line(file, line, function): "+".join(calls) for file, line, function, calls in orders}
        identity = (
            f"{wrong.variable}: {actual_text(wrong)}, expected {expected_text(wrong)}" if wrong is not None else ""
        )
        proposals = proposals_of(run.panel.history())
        return Seen(outputs, tuple(_text(race.order) for race in races), identity, lines, proposals)


def _broken_identity(run: Run) -> Difference | None:
    """Return the first violated check of model inputs in a finished run, or None."""
    judges = (judge for judge in run.panel.judges if isinstance(judge, ModelInputs | DrafterInputs))
    broken = (judge.at_end(End(run.feed.tick, run.target.outputs(), history=run.panel.history())) for judge in judges)
    return next((found for found in broken if found is not None), None)


def _text(race: MissingOrder) -> str:
    """Return a race in one line: buffer and both source lines."""
    return f"{race.memory}: {_side(race.first)} and {_side(race.second)}"


def _side(access: Access) -> str:
    site = access.site
    return f"{access.actor} ({site.file.partition('/')[2]}:{site.line})" if site is not None else access.actor
