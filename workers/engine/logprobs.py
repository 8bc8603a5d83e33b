"""Logprobs of sampled tokens: compute them after sampling, copy them to the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.memory import View, device_array, ring_size
from workers.kernels.copies.definition import CopyLogprobs
from workers.kernels.keep_logits.definition import KeepLogits
from workers.kernels.logprobs import definition as ops
from workers.kernels.logprobs.definition import LOGPROBS_MAX
from workers.kernels.sentinels import NO_TOKEN
from workers.lanes.lane import Machine, Span

_token_logprobs = arguments_of(ops.TokenLogprobs, "rows", "logits", "ids", "logprobs")
_flatten_logprobs = arguments_of(
    ops.FlattenLogprobs, "rows", "ids", "logprobs", "flat_ids", "flat_logprobs", "width", num_sampled="valid"
)

# One token's logprobs as id, logprob, id, logprob, ...; the sampled token is first.
TokenLogprobs: TypeAlias = tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class LogprobsInFlight:
    """The batch rows of a step that want logprobs, and pinned memory for their results."""

    rows: tuple[int, ...]
    ids: Span
    logprobs: Span


class Logprobs:
    """Buffers and ops of logprobs; without logprobs rows, a step enqueues none of the ops."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        self._machine = machine
        memory, spec = context.memory, context.spec
        columns = memory.rows_max * (1 + spec.num_speculative_tokens)
        size, slots = columns * LOGPROBS_MAX, range(ring_size("output", spec))
        self._raw = machine.buffer("raw_logits", device_array(columns * spec.vocab_size, np.float32), lane="compute")
        self._ids = machine.buffer("logprob_ids", device_array(size), lane="compute")
        self._logprobs = machine.buffer("logprobs", device_array(size, np.float32), lane="compute")
        self._flat_ids = machine.buffer("flat_logprob_ids", device_array(size))
        self._flat = machine.buffer("flat_logprobs", device_array(size, np.float32))
        self._host_ids = [machine.buffer(f"logprob_ids[{n}]", device_array(size), pinned=True) for n in slots]
        self._host = [machine.buffer(f"logprobs[{n}]", device_array(size, np.float32), pinned=True) for n in slots]

    def keep(self, forward: Forward) -> None:
        """Enqueue a copy of the logits before they are processed, if raw logprobs are requested."""
        context, view = self._context, forward.view
        if self._reads_raw(forward):
            context.compute.launch(
                context.functions.keep_logits, context.arguments(KeepLogits, view.logits, self._raw_of(view))
            )

    def _reads_raw(self, forward: Forward) -> bool:
        changed = bool(forward.named.processed)
        return changed and bool(forward.named.logprobs) and self._context.spec.logprobs_mode == "raw"

    def _raw_of(self, view: View) -> Span:
        width = 1 + self._context.spec.num_speculative_tokens
        return self._raw.span(0, view.num_rows * width * self._context.spec.vocab_size)

    def launch(self, forward: Forward) -> None:
        """Enqueue the ops that compute and flatten the logprobs of sampled tokens."""
        named = forward.named.logprobs
        if not named:
            return
        context, view = self._context, forward.view
        launch, functions, memory = context.compute.launch, context.functions, context.memory
        logits = (
            functions.logits_for_logprobs(view.logits, self._raw_of(view)) if self._reads_raw(forward) else view.logits
        )
        rows = memory.special_rows("logprobs", len(named))
        ids, logprobs = self._ids.all, self._logprobs.all
        launch(functions.token_logprobs, context.cached(_token_logprobs, view, rows, logits, ids, logprobs))
        flat_ids, flat, width = self._flat_ids.all, self._flat.all, 1 + context.spec.num_speculative_tokens
        flattened = context.cached(_flatten_logprobs, view, rows, ids, logprobs, flat_ids, flat, width)
        launch(functions.flatten_logprobs, flattened)

    def launch_copies(self, forward: Forward) -> LogprobsInFlight | None:
        """Enqueue the copies of the logprobs to the host."""
        if not forward.named.logprobs:
            return None
        context = self._context
        lane, copy = context.d2h_output, context.functions.copy_logprobs
        slot = forward.step % len(self._host)
        in_flight = LogprobsInFlight(forward.named.logprobs, self._host_ids[slot].all, self._host[slot].all)
        lane.launch(copy, context.arguments(CopyLogprobs, self._flat_ids.all, in_flight.ids))
        lane.launch(copy, context.arguments(CopyLogprobs, self._flat.all, in_flight.logprobs))
        return in_flight

    def read(
        self, in_flight: LogprobsInFlight, step: int, outputs: Sequence[Sequence[int]], num_rows_now: int
    ) -> Sequence[Sequence[TokenLogprobs]]:
        """Wait for a step's logprobs to arrive on the host; return them by row and sampled token."""
        with self._machine.host(in_flight.ids, "r", step) as landed:
            ids = tuple(landed.data)
        with self._machine.host(in_flight.logprobs, "r", step) as landed:
            logprobs = tuple(landed.data)
        found: dict[int, tuple[TokenLogprobs, ...]] = {}
        start = 0
        for row in self._context.functions.logprob_rows(in_flight.rows, num_rows_now):
            end = start + len(outputs[row]) * LOGPROBS_MAX
            found[row] = tuple(_pairs(ids, logprobs, first) for first in range(start, end, LOGPROBS_MAX))
            start = end
        return tuple(found.get(row, ()) for row in range(len(outputs)))


def _pairs(ids: Sequence[int], logprobs: Sequence[float], first: int) -> TokenLogprobs:
    """Return one sampled token's (id, logprob) pairs, read from index `first` of flat arrays."""
    places = range(first, first + LOGPROBS_MAX)
    return tuple(chain.from_iterable((ids[place], logprobs[place]) for place in places if ids[place] != NO_TOKEN))


def wanted_logprobs(num_logprobs: int, tokens: Sequence[TokenLogprobs]) -> TokenLogprobs:
    """Return the first `num_logprobs` pairs of each token, in one flat tuple."""
    return tuple(value for token in tokens for value in token[: 2 * num_logprobs])
