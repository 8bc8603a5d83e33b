"""Process of a mutated engine: answers what that of the target answers, and mutates engines that run ahead."""

from collections.abc import Sequence
from typing import Any

from benchmarks.power.vllm_mutants.mistakes import MISTAKES
from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.main import serve
from workers.targets.child.messages import Message
from workers.targets.simulated_torch.device import activate
from workers.targets.simulated_torch.reports import SourceLine
from workers.targets.vllm.inside.main import start


class MutatedHost(Host):
    """Answers messages; engines that run ahead are mutated, those that do not are as they are."""

    _lines: tuple[SourceLine, ...] = ()
    _mistake = ""

    def answer(self, message: Message) -> Message:
        """Return the answer to a message."""
        match message["do"]:
            case "mutate":
                self._lines = tuple(SourceLine(file, line, "") for file, line in message["lines"])
                self._mistake = message["mistake"]
                self.engines.forget()
                return {}
            case "orders":
                return {"orders": [[*_told(order.line), list(order.calls)] for order in activate().orders()]}
        return super().answer(message)

    def open(self, spec: EngineSpec, schedule: Schedule, **watched: bool) -> None:
        """Begin a session, on an engine that is mutated if it runs ahead."""
        super().open(spec, schedule, **watched)
        if spec.depth > 1 and self.session is not None:
            activate().leave_out(self._lines)
            if self._mistake:
                engines: Any = self.engines
                MISTAKES[engines.runner][self._mistake].make(self.session.memory["runner"])

    def close(self) -> None:
        """End the session; a mistake is made in an engine once."""
        super().close()
        if self._mistake:
            self.engines.forget()


def _told(line: SourceLine) -> list[str | int]:
    return [line.file, line.line, line.function.rpartition(".")[2]]


def host(arguments: Sequence[str]) -> tuple[Host, str]:
    """Return the host of vLLM's engines, and its version."""
    engines, device, version = start(arguments)
    return MutatedHost(engines, device), version


if __name__ == "__main__":
    serve(host)
