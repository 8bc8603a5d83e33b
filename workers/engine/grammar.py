"""Structured output: advance grammars on the host, remove draft tokens, mask logits.

The bitmask of a step depends on every token before it, so a request with a sample in flight is not scheduled.
"""

from collections.abc import Sequence
from itertools import chain

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.input_batch import Row
from workers.engine.memory import device_array, ring_size
from workers.engine.request import Plan
from workers.kernels.copies.definition import CopyMasks
from workers.kernels.grammar.definition import ApplyMasks, GrammarDrafts
from workers.kernels.process_logits.definition import BITS
from workers.lanes.lane import Machine

_grammar_drafts = arguments_of(GrammarDrafts, "rows")


class Grammars:
    """Buffers and ops of structured output; steps without grammar requests run none of the ops."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        self._machine = machine
        spec, rows = context.spec, context.memory.rows_max
        self._columns_max = rows * (1 + spec.num_speculative_tokens)
        self._num_words = -(-spec.vocab_size // BITS)
        size, slots = self._columns_max * (1 + self._num_words), range(ring_size("staging", spec))
        self._staging = [machine.buffer(f"staging_masks[{slot}]", device_array(size), pinned=True) for slot in slots]
        self._masks = machine.buffer("masks", device_array(size))
        self._num_masks = 0

    def stage(self, plan: Plan, rows: Sequence[Row]) -> None:
        """Write the bitmasks of a step to pinned memory and enqueue their copy."""
        context, spec = self._context, self._context.spec
        planned = tuple(row for row in plan.rows if row.request.params.grammar and not row.discard)
        place = {row.key: index for index, row in enumerate(rows)}
        masks = tuple(chain.from_iterable(context.functions.mask_rows(row, spec.vocab_size) for row in planned))
        staging = self._staging[plan.step % len(self._staging)]
        at = start = 0
        with self._machine.host(staging.all, "w") as staged:
            words = staged[self._columns_max :].reshape(self._columns_max, self._num_words)
            for row in planned:
                first = place[row.request.index, row.scheduled.epoch] * (1 + spec.num_speculative_tokens)
                # Column indexes and mask words share a buffer: one column too many would be read as a mask.
                assert at + row.scheduled.d < self._columns_max, (
                    f"{at + 1 + row.scheduled.d} masks, at most {self._columns_max} fit"
                )
                for index in range(1 + row.scheduled.d):
                    staged[at], words[at] = first + index, masks[start + index]
                    at += 1
                start += context.functions.num_masks(row)
        self._num_masks = at
        context.h2d.launch(context.functions.copy_masks, context.arguments(CopyMasks, staging.all, self._masks.all))

    def launch_drafts(self, forward: Forward) -> None:
        """Enqueue the op that overwrites grammar rows' draft tokens with the host-checked ones."""
        context, view, named = self._context, forward.view, forward.named.grammar
        if named:
            rows = context.memory.special_rows("grammar", len(named))
            context.compute.launch(context.functions.grammar_drafts, context.cached(_grammar_drafts, view.shape, rows))

    def launch_masks(self, forward: Forward) -> None:
        """Enqueue the op that sets logits of forbidden tokens to -inf."""
        if forward.named.grammar:
            context, first, count = self._context, self._columns_max, self._num_masks
            columns = self._masks.span(0, count, "columns")
            masks = self._masks.span(first, first + count * self._num_words, "masks")
            arguments = context.arguments(ApplyMasks, columns, masks, forward.view.logits, context.spec.vocab_size)
            context.compute.launch(context.functions.apply_masks, arguments)
