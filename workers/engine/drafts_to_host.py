"""Transfer of drafts to the host: what the device proposed, to be checked there or used by the next step."""

from collections.abc import Sequence

from scenarios.spec import ON_THE_HOST, THROUGH_THE_HOST
from workers.engine.context import Context, Forward
from workers.engine.memory import device_array, ring_size
from workers.engine.step import DraftsInFlight
from workers.kernels.copies.arguments import CopyDrafts
from workers.lanes.lane import Machine


class DraftsToHost:
    """The pinned memory and the copies; a step whose drafts the host has no use for enqueues nothing."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        self._machine = machine
        spec = context.spec
        self._are_handed_over = spec.drafter in THROUGH_THE_HOST and spec.drafter not in ON_THE_HOST
        size, slots = context.memory.rows_max * spec.num_speculative_tokens, range(ring_size("staging", spec))
        self._drafts = [machine.buffer(f"drafts[{slot}]", device_array(size), pinned=True) for slot in slots]
        self._drafts_done = [machine.event("drafts_done") for _ in slots]

    def launch(self, forward: Forward) -> DraftsInFlight | None:
        """Enqueue the copy of a step's drafts, if the host has a use for them."""
        context, k = self._context, self._context.spec.num_speculative_tokens
        is_read = forward.named.grammar or self._are_handed_over
        if not is_read or not k:
            return None
        slot = forward.step % len(self._drafts)
        drafts = self._drafts[slot].span(0, forward.view.num_rows * k)
        context.compute.launch(
            context.parts.copy_drafts, context.arguments(CopyDrafts, forward.view.draft_tokens, drafts)
        )
        self._drafts_done[slot].record(context.compute)
        return DraftsInFlight(self._drafts_done[slot], drafts)

    def read(self, in_flight: DraftsInFlight, step: int) -> Sequence[Sequence[int]]:
        """Wait for the drafts of a step and return those of each row."""
        in_flight.landed.synchronize()
        with self._machine.host(in_flight.drafts, "r", step) as landed:
            drafts, k = tuple(landed.data), self._context.spec.num_speculative_tokens
        return tuple(drafts[first : first + k] for first in range(0, len(drafts), k))
