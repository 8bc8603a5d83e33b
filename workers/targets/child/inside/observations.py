"""Observations of one engine's steps, in the order of its device: what the host tells, and values of tensors."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from scenarios.spec import EngineName
from workers.targets.child.inside.readback import Parts, Readback
from workers.targets.child.messages import Message


def margins(logits: torch.Tensor) -> list[float]:
    """Return how far the likeliest token of each row is above the next."""
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    found: list[float] = (first - second).tolist()
    return found


class Observations:
    """Observations of an engine, appended to those `seen` of all engines of a session.

    `number_of` tells which request of the trace an engine's id is, `judged` the names that judges have for a tensor at
    a point. `step` is the number of the step that observations are of, unless another is named.
    """

    def __init__(
        self,
        readback: Readback,
        number_of: Callable[[str], int],
        judged: Callable[[str, str], Sequence[str]],
        seen: list[Message],
        of: EngineName,
    ) -> None:
        self.step = -1
        self._readback, self._number_of, self._judged = readback, number_of, judged
        self._seen, self._of = seen, of

    def take(self) -> list[Message]:
        """Return what was seen since the last call; of a step on the device, once it has run."""
        self._readback.arrived()
        seen = list(self._seen)
        self._seen.clear()
        return seen

    def finish(self) -> None:
        """Wait for what a device has not come to."""
        self._readback.finish()

    def observe(
        self,
        point: str,
        names: Sequence[str],
        tensors: Mapping[str, torch.Tensor | Parts],
        values_of: Callable[[torch.Tensor], list[Any]] = torch.Tensor.tolist,
        **values: Any,
    ) -> None:
        """Note values of tensors as they are once the device has come so far."""

        def made(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            return {name: [value for view in given for value in values_of(view)] for name, given in views.items()}

        self.read(point, names, tensors, made, **values)

    def read(
        self,
        point: str,
        names: Sequence[str],
        tensors: Mapping[str, torch.Tensor | Parts],
        made: Callable[[Mapping[str, Parts]], Mapping[str, Any]],
        step: int | None = None,
        **values: Any,
    ) -> None:
        """Note what is made of tensors as they are once the device has come so far, and what functions return then."""
        step, place = self.step if step is None else step, self._place()
        parts = {name: [given] if isinstance(given, torch.Tensor) else given for name, given in tensors.items()}

        written = {name: self._readback.writers(given) for name, given in parts.items()}
        writers = {name: all_ for given, all_ in written.items() if all_ for name in self._judged(point, given)}

        def keep(views: Mapping[str, Parts]) -> None:
            told = {name: value() if callable(value) else value for name, value in values.items()}
            self._keep(place, point, names, step, writers, **told, **made(views))

        self._readback.read(parts, keep)

    def note(self, point: str, names: Sequence[str], step: int | None = None, **values: Any) -> None:
        """Note what the host tells."""
        step = self.step if step is None else step
        self._readback.tell(partial(self._keep, self._place(), point, names, step, {}, **values))

    def in_turn(self, told: Callable[[int], None]) -> None:
        """Have something told, with the number of this step, once the device has come so far."""
        self._readback.in_turn(partial(told, self.step))

    def keep(self, point: str, names: Sequence[str], step: int, **values: Any) -> None:
        """Keep what the device has come to."""
        self._keep(self._place(), point, names, step, {}, **values)

    def _place(self) -> list[Message]:
        """Return where what is noted now belongs."""
        return self._seen

    def _keep(
        self, place: list[Message], point: str, names: Sequence[str], step: int, writers: Message, **values: Any
    ) -> None:
        requests = [self._number_of(name) for name in names]
        seen = {"point": point, "step": step, "requests": requests, "values": values, "of": self._of}
        place.append({**seen, "writers": writers} if writers else seen)
