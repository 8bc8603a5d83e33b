"""Process of a mutated engine: answers what that of the target answers, and mutates engines that run ahead."""

from typing import Any

from benchmarks.power.vllm_mutants.mistakes import MISTAKES
from scenarios.events import Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.messages import Message
from workers.targets.simulated_torch.device import activate
from workers.targets.simulated_torch.reports import SourceLine
from workers.targets.vllm.inside.main import Host, main


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
                self._engines.forget()
                return {}
            case "orders":
                orders = activate().orders()
                return {"orders": [[*_told(order.line), list(order.calls), order.count] for order in orders]}
        return super().answer(message)

    def _open(self, spec: EngineSpec, schedule: Schedule, races: bool, steps: bool) -> Message:
        answer = super()._open(spec, schedule, races, steps)
        if spec.depth > 1 and self._session is not None:
            activate().leave_out(self._lines)
            if self._mistake:
                MISTAKES[self._runner][self._mistake].make(_runner_of(self._session.engine))
        return answer

    def _close(self) -> None:
        super()._close()
        if self._mistake:
            # A mistake is made in an engine once.
            self._engines.forget()


def _told(line: SourceLine) -> list[str | int]:
    return [line.file, line.line, line.function.rpartition(".")[2]]


def _runner_of(engine: Any) -> Any:
    return engine.model_executor.driver_worker.worker.model_runner


if __name__ == "__main__":
    main(MutatedHost)
