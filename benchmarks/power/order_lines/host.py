"""Host of mutated engines: answers the target's messages, and leaves out lines of an engine."""

from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from workers.simulated_torch.device import activate
from workers.simulated_torch.reports import SourceLine
from workers.targets.child.inside.host import Host
from workers.targets.child.messages import Message


class MutatedHost(Host):
    """Answers messages; mutates asynchronous engines and leaves synchronous ones unchanged."""

    _lines: tuple[SourceLine, ...] = ()

    def answer(self, message: Message) -> Message:
        """Return the answer to a message."""
        match message["do"]:
            case "mutate":
                self._lines = tuple(SourceLine(file, line, "") for file, line in message["lines"])
                self.engines.forget()
                return {}
            case "orders":
                return {"orders": [[*_line_fields(order.line), list(order.calls)] for order in activate().orders()]}
        return super().answer(message)

    def open(self, spec: EngineSpec, schedule: Schedule, **watched: bool) -> None:
        """Begin a session; an asynchronous engine is mutated."""
        super().open(spec, schedule, **watched)
        if spec.depth > 1 and self.session is not None:
            activate().leave_out(self._lines)


def _line_fields(line: SourceLine) -> list[str | int]:
    return [line.file, line.line, line.function.rpartition(".")[2]]
