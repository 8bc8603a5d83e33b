"""Observations of an engine's steps: host values and tensors, recorded in stream order."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import torch

from scenarios.spec import EngineName
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.inside.readback import Parts, Readback
from workers.targets.child.messages import Message


def margins(logits: torch.Tensor) -> list[float]:
    """Return for each row of logits the largest minus the second largest logit.

    Where the gap is tiny, rounding can change the output token or draft token that greedy sampling picks.
    """
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    found: list[float] = (first - second).tolist()
    return found


def digests(parts: Parts) -> list[int]:
    """Return a digest of the bytes of each row; a row of several tensors is joined first."""
    columns = [part.flatten(1).contiguous().view(torch.uint8).numpy() for part in parts if part.numel()]
    joined = (b"".join(row.tobytes() for row in rows) for rows in zip(*columns, strict=True))
    return [int.from_bytes(blake2b(row, digest_size=6).digest()) for row in joined]


class Observations:
    """Collects an engine's records in `seen`, a list that all engines of a trace share.

    A step's observations are values of its scheduler, model runner and drafter at named points, such as block tables,
    slot mappings and draft tokens. `number_of` maps the engine's request id to the request's number in the trace,
    `judged` maps a tensor at a point to the variables that judges use for it. `step` is the number of the observed
    step, unless a call has its own.
    """

    def __init__(
        self,
        readback: Readback,
        number_of: Callable[[str], int],
        judged: Callable[[str, str], Sequence[str]],
        seen: list[Message],
        of: EngineName,
        hosts: Hosts | None = None,
    ) -> None:
        self._hosts = hosts
        self.step = -1
        self._readback, self._number_of, self._judged = readback, number_of, judged
        self._seen, self._of = seen, of

    @property
    def step(self) -> int:
        """Number of the step to observe: the latest scheduled one, or that of the rank's thread."""
        here = self._hosts.here if self._hosts is not None else None
        return self._planned if here is None or here.rank is None or here.step is None else here.step

    @step.setter
    def step(self, number: int) -> None:
        self._planned = number
        if self._hosts is not None:
            self._hosts.planned = number

    def take(self) -> list[Message]:
        """Return the engine records since the last call; on a GPU, only those that arrived."""
        self._readback.deliver_arrived()
        seen = list(self._seen)
        self._seen.clear()
        return seen

    def finish(self) -> None:
        """Wait until the device has computed all observed tensors."""
        self._readback.finish()

    def observe(
        self,
        point: str,
        names: Sequence[str],
        tensors: Mapping[str, torch.Tensor | Parts],
        values_of: Callable[[torch.Tensor], list[Any]] = torch.Tensor.tolist,
        **values: Any,
    ) -> None:
        """Record the values that tensors have at this point of the current stream."""

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
        """Record values computed from tensors, as of this point of the current stream.

        `made` computes them from copies of the tensors, e.g. the slot mapping of each batch row. A callable among
        `values` is called at that time.
        """
        step, place = self.step if step is None else step, self._place()
        parts = {name: [given] if isinstance(given, torch.Tensor) else given for name, given in tensors.items()}

        written = {name: self._readback.writers(given) for name, given in parts.items()}
        writers = {name: all_ for given, all_ in written.items() if all_ for name in self._judged(point, given)}

        def keep(views: Mapping[str, Parts]) -> None:
            computed = {name: value() if callable(value) else value for name, value in values.items()}
            self._keep(place, point, names, step, writers, **computed, **made(views))

        self._readback.read(parts, keep)

    def look(self, tensors: Mapping[str, torch.Tensor | Parts], receive: Callable[[Mapping[str, Parts]], None]) -> None:
        """Call `receive` with the values that tensors have at this point of the current stream; record nothing."""
        parts = {name: [given] if isinstance(given, torch.Tensor) else given for name, given in tensors.items()}
        self._readback.read(parts, receive)

    def note(self, point: str, names: Sequence[str], step: int | None = None, **values: Any) -> None:
        """Record host values; they stay in order with the tensors that are observed.

        Examples are a scheduler's plan of a step, its preemptions, or the output tokens that it has processed.
        """
        step = self.step if step is None else step
        self._readback.add_host_values(partial(self._keep, self._place(), point, names, step, {}, **values))

    def call_when_reached(self, receive: Callable[[int], None]) -> None:
        """Call `receive` with the step's number when the current stream reaches this point."""
        self._readback.call_when_reached(partial(receive, self.step))

    def keep(self, point: str, names: Sequence[str], step: int, **values: Any) -> None:
        """Record values in a callback that is already called in stream order."""
        self._keep(self._place(), point, names, step, {}, **values)

    def _place(self) -> list[Message]:
        """Return the list to which the next engine record is appended."""
        return self._seen

    def _keep(
        self, place: list[Message], point: str, names: Sequence[str], step: int, writers: Message, **values: Any
    ) -> None:
        requests = [self._number_of(name) for name in names]
        seen = {"point": point, "step": step, "requests": requests, "values": values, "of": self._of}
        place.append({**seen, "writers": writers} if writers else seen)
