"""Host in an engine's process that leaves out source lines of asynchronous engines."""

from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from workers.simulated_torch.device import activate
from workers.simulated_torch.reports import SourceLine
from workers.targets.child.inside.host import Host
from workers.targets.child.messages import Message


class MutatedHost(Host):
    """Serves messages in an engine's process, and leaves lines out of async engines."""

    _lines: tuple[SourceLine, ...] = ()

    def answer(self, message: Message) -> Message:
        """Answer a message: `mutate` sets the left-out lines, `orders` returns order lines."""
        match message["do"]:
            case "mutate":
                self._lines = tuple(SourceLine(file, line, "") for file, line in message["lines"])
                self.engines.forget()
                return {}
            case "orders":
                return {"orders": [[*_line_fields(order.line), list(order.calls)] for order in activate().orders()]}
        return super().answer(message)

    def open(self, spec: EngineSpec, schedule: Schedule, **watched: bool) -> None:
        """Open the engine for a trace, without the left-out lines if it is asynchronous."""
        super().open(spec, schedule, **watched)
        if spec.depth > 1 and self.session is not None:
            activate().leave_out(self._lines)


def _line_fields(line: SourceLine) -> list[str | int]:
    return [line.file, line.line, line.function.rpartition(".")[2]]
