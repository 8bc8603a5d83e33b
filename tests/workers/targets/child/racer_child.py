"""Tiny PyTorch engine in a child process on the simulated device: it adds up tokens.

Each output token is the sum of all tokens before it. The sums return by a copy to pinned memory. With the argument
`unordered`, the host reads them before the copy is complete. A further argument is the effect of a wrong sum: `stuck`,
`crash`, `exit`, or by default a wrong output token.
"""

import os
from collections.abc import Mapping, Sequence

import torch

from scenarios.events import AnyEvent, Submit
from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.main import serve
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.child.messages import Message


class Buffers:
    """Memory of the engine; reports name it by its attributes."""

    def __init__(self) -> None:
        self.sums = torch.zeros(1, dtype=torch.int64, device="sim")
        # Two buffers that are used in turn.
        self.results = [torch.zeros(1, dtype=torch.int64, pin_memory=True) for _ in range(2)]


class Runner:
    """Object that a session names; it has no memory of its own."""

    def __init__(self) -> None:
        self.buffers = Buffers()


class RacerSession:
    """One trace with one request at a time."""

    def __init__(self, runner: Runner, vocab_size: int, arguments: Sequence[str]) -> None:
        self.probes: Mapping[str, int] = {}
        self.memory = {"runner": runner}
        self._buffers, self._vocab_size, self._arguments = runner.buffers, vocab_size, arguments
        self._is_stuck = False
        self._live: dict[str, tuple[list[int], int]] = {}

    def happen(self, event: AnyEvent) -> None:
        assert isinstance(event, Submit)
        assert isinstance(event.prompt, tuple)
        self._live[event.request] = [*event.prompt], len(event.prompt) + event.max_tokens

    def step(self) -> Sequence[Delivery]:
        if self._is_stuck:
            return []
        name, (tokens, length) = next(iter(self._live.items()))
        self._buffers.sums.fill_(sum(tokens))
        result = self._buffers.results[len(tokens) % 2]
        result.copy_(self._buffers.sums, non_blocking=True)
        if "unordered" not in self._arguments:
            torch.cuda.current_stream().synchronize()
        if int(result[0]) != sum(tokens):
            if "exit" in self._arguments:
                os._exit(1)
            if "crash" in self._arguments:
                raise IndexError(f"row {int(result[0])}")
            self._is_stuck = "stuck" in self._arguments
        tokens.append(int(result[0]) % self._vocab_size)
        reason = "length" if len(tokens) == length else None
        if reason is not None:
            del self._live[name]
        return [Delivery(request=name, output=Output((tokens[-1],), reason), is_late=False)]

    def drained(self) -> bool:
        return not self._live

    def ended(self) -> None:
        """Record nothing: this engine has no observations."""

    def seen(self) -> list[Message]:
        return []

    def close(self) -> None:
        """Do nothing: the buffers are kept."""


class Racers:
    """One engine with buffers that are kept between traces."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._runner, self._arguments = Runner(), arguments

    def open(self, spec: EngineSpec, observed: bool) -> RacerSession:
        return RacerSession(self._runner, spec.vocab_size, self._arguments)

    def forget(self) -> None:
        self._runner = Runner()


def host(arguments: Sequence[str]) -> tuple[Host, str]:
    device = SimulatedDevice(own=(__name__,), pools=("results",))
    return Host(Racers(arguments), device), torch.__version__


if __name__ == "__main__":
    serve(host)
