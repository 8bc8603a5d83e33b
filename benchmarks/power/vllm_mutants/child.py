"""Process of a mutated vLLM engine: async engines lack lines or contain a mistake."""

from collections.abc import Sequence
from typing import Any

from benchmarks.power.order_lines.host import MutatedHost
from benchmarks.power.vllm_mutants.mistakes import MISTAKES
from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.main import serve
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.main import start


class MistakenHost(MutatedHost):
    """Serves messages in vLLM's process, and plants a mistake in async engines."""

    _mistake = ""

    def answer(self, message: Message) -> Message:
        """Answer a message; `mutate` also selects the mistake."""
        if message["do"] == "mutate":
            self._mistake = message["mistake"]
        return super().answer(message)

    def open(self, spec: EngineSpec, schedule: Schedule, **watched: bool) -> None:
        """Open the engine for a trace, with the mistake if it is asynchronous."""
        super().open(spec, schedule, **watched)
        if spec.depth > 1 and self.session is not None and self._mistake:
            engines: Any = self.engines
            MISTAKES[engines.runner][self._mistake].make(self.session.memory["runner"])

    def close(self) -> None:
        """Close the trace's engine; an engine with a mistake is not reused."""
        super().close()
        if self._mistake:
            self.engines.forget()


def host(arguments: Sequence[str]) -> tuple[Host, str]:
    """Return the object that serves messages in vLLM's process, and vLLM's version."""
    engines, device, version = start(arguments)
    return MistakenHost(engines, device), version


if __name__ == "__main__":
    serve(host)
