"""Tiny engine in a child process: each output token is the sum of all tokens before it."""

from collections import Counter
from collections.abc import Mapping, Sequence

from scenarios.events import Abort, AnyEvent, EndSession, Pausing, Submit
from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.inside.host import Host
from workers.targets.child.inside.main import serve
from workers.targets.child.messages import Message


class AdderSession:
    """One trace; sums are modulo the vocabulary size.

    With `ahead`, async scheduling at depth 2 is simulated with a bug: the sum lacks the latest output token.
    """

    def __init__(self, spec: EngineSpec, ahead: bool) -> None:
        self.probes: Counter[str] = Counter()
        self.memory: Mapping[str, object] = {}
        self._vocab_size, self._ahead = spec.vocab_size, ahead and spec.depth > 1
        self._live: dict[str, tuple[list[int], int]] = {}
        self._aborted: list[str] = []

    def happen(self, event: AnyEvent) -> None:
        match event:
            case Submit(request=name, prompt=tuple(prompt)):
                self._live[name] = [*prompt], len(prompt) + event.max_tokens
            case Abort(request=name):
                self.probes["abort"] += self._live.pop(name, None) is not None
            case Pausing(mode="abort"):
                self._aborted += self._live
                self._live.clear()
            case EndSession():
                # Each part of a session is a request of its own here.
                pass
            case _:
                raise ValueError(f"{event.do} is not an event of this engine")

    def step(self) -> Sequence[Delivery]:
        found = [_delivery(name, (), "abort") for name in self._aborted]
        self._aborted.clear()
        for name, (tokens, length) in [*self._live.items()]:
            tokens.append(sum(tokens[: -1 if self._ahead else None]) % self._vocab_size)
            reason = "length" if len(tokens) == length else None
            found.append(_delivery(name, (tokens[-1],), reason))
            if reason is not None:
                del self._live[name]
        return found

    def drained(self) -> bool:
        return not (self._live or self._aborted)

    def ended(self) -> None:
        """Record nothing: this engine has no observations."""

    def seen(self) -> list[Message]:
        return []

    def close(self) -> None:
        """Do nothing: no engine is kept."""


def _delivery(name: str, tokens: tuple[int, ...], reason: str | None) -> Delivery:
    return Delivery(request=name, output=Output(tokens, reason), is_late=False)


class Adders:
    """Engines that are created for each trace."""

    def __init__(self, ahead: bool) -> None:
        self._ahead = ahead

    def open(self, spec: EngineSpec, observed: bool) -> AdderSession:
        return AdderSession(spec, self._ahead)

    def forget(self) -> None:
        """Do nothing: no engine is kept."""


if __name__ == "__main__":
    serve(lambda arguments: (Host(Adders(arguments == ["ahead"])), "1"))
