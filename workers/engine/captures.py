"""Captures: copies of device variables, taken in stream order for the judges only."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from workers.engine.memory import Memory, View
from workers.kernels.arithmetic.numpy import ZERO, int64_scalar, tiled
from workers.kernels.sentinels import PAD_BLOCK, POISON
from workers.kernels.state_copy.definition import num_block_columns
from workers.lanes.lane import Lane, Span
from workers.record.observation import Recorder

Array = NDArray[Any]
NAN_BITS = 0x7FC00000
_OF_DRAFTER: tuple[str, ...] = ("drafter_kv", "raw", "proposed")
# The spans of a view that are captured after the model and at the end of a step.
_SAMPLED = ("slots", "logits", "attended", "hidden", "sampled", "accepted", "valid", "next_tokens")
_sampled_of = attrgetter(*_SAMPLED)
_state_of = attrgetter("slots", "raw", "draft_tokens", "state_slot", "accepted")
_OF_STATE = (*_OF_DRAFTER, "slot_accepted", "state", "window")
_INPUTS = ("num_computed", "accepted_read", "seq_lens", "positions", "slots", "scheduled_drafts", "input_ids")
Requests = tuple[int, ...]


class Captures:
    """Copies device variables of each step for the judges, in stream order (not CUDA graphs)."""

    def __init__(self, spec: EngineSpec, memory: Memory, compute: Lane, recorder: Recorder) -> None:
        self._spec = spec
        self._memory = memory
        self._compute = compute
        self._recorder = recorder
        self._is_hybrid = spec.layers == "hybrid"
        accepted = "accepted_host" if spec.accepted_counts == "host" else "accepted_read"
        self._inputs_of = attrgetter(*(accepted if name == "accepted_read" else name for name in _INPUTS))
        self._traits = TRAITS[spec.drafter]
        self._num_drafts, self._window = spec.num_speculative_tokens, spec.conv_width - 1

    def inputs(self, view: View, step: int, requests: Requests) -> None:
        """Copy the model inputs of a step."""
        record = self._recorder.capture
        spans = self._inputs_of(view)
        self._compute.capture(lambda *arrays: record("inputs", step, requests, _INPUTS, arrays), *spans)

    def poisoned(self, blocks: Sequence[int], step: int, requests: Requests) -> None:
        """Record the ids of the reallocated blocks that hold only poison before the step's writes."""
        record, memory, chosen = self._recorder.capture, self._memory, np.sort(np.array(blocks, dtype=np.int64))
        buffers = [memory.kv, memory.drafter_kv]
        buffers += [memory.block_states, memory.block_windows] if self._spec.is_aligned else []

        def look(*arrays: Array) -> None:
            words = [array.reshape(self._spec.num_blocks, -1)[chosen] for array in arrays]
            is_poison = np.all([np.all(each == POISON, axis=1) for each in words], axis=0)
            record("poisoned", step, requests, ("poisoned",), (np.where(is_poison, chosen, PAD_BLOCK),))

        self._compute.capture(look, *[buffer.all for buffer in buffers])

    def sampled(self, view: View, step: int, requests: Requests, has_processed: bool) -> None:
        """Copy KV-cache entries, hidden states, sampled tokens and accepted counts of a step.

        Processed logits are captured as one hash per column.
        """
        names: tuple[str, ...] = ("kv", "attention", "hidden", "sampled", "accepted", "valid", "next_tokens")
        names += ("logits",) if has_processed else ()
        record, vocab_size = self._recorder.capture, self._spec.vocab_size

        def look(kv: Array, slots: Array, logits: Array, *arrays: Array) -> None:
            hashed = (hashes(logits, vocab_size),) if has_processed else ()
            record("sampled", step, requests, names, (kv.take(slots, mode="clip"), *arrays, *hashed))

        self._compute.capture(look, self._memory.kv.all, *_sampled_of(view))

    def sampling(self, view: View, step: int, requests: Requests, fields: Sequence[Span]) -> None:
        """Copy the inputs and results of random sampling, as bits for exact comparison.

        Draft logits are captured as a hash of those in each row's state slot.
        """
        record, spec, zero = self._recorder.capture, self._spec, int64_scalar(0)
        names: tuple[str, ...] = ("temperature", "top_p", "top_k", "seeds", "noise_positions")
        names += ("accept_noise", "select_noise", "sampler_status")
        has_drawn = spec.draft_sampling == "probabilistic" and spec.num_speculative_tokens > 0
        names += ("draft_logits_read",) if has_drawn else ()

        def look(draft_logits: Array, state_slot: Array, *arrays: Array) -> None:
            bits = [array.view(np.int32) if array.dtype == np.float32 else array for array in arrays]
            if has_drawn:
                lines = draft_logits.reshape(-1, spec.num_speculative_tokens * spec.vocab_size)
                bits.append(hashes(lines[np.maximum(state_slot, zero)].ravel(), spec.vocab_size))
            record("sampling", step, requests, names, bits)

        self._compute.capture(look, self._memory.draft_logits.all, view.state_slot, *fields)

    def state(self, view: View, step: int, requests: Requests) -> None:
        """Copy the drafter's KV entries, draft tokens and recurrent states at the end of a step."""
        memory, look = self._memory, partial(self._look_at_states, step, requests)
        kept = memory.drafter_kv.all, memory.slot_accepted.all, memory.states.all, memory.conv.all
        self._compute.capture(look, *_state_of(view), *kept)

    def _look_at_states(self, step: int, requests: Requests, *looked_at: Array) -> None:
        slots, raw, drafts, state_slot, accepted, drafter_kv, slot_accepted, states, conv = looked_at
        names = _OF_DRAFTER
        arrays: tuple[Array, ...] = (drafter_kv.take(slots, mode="clip"), raw, drafts)
        if self._is_hybrid:
            k, length = self._num_drafts, self._window
            row = np.maximum(state_slot, ZERO)
            committed = np.minimum(np.maximum(accepted, ZERO), int64_scalar(1 + k))
            at = (row * int64_scalar(1 + length + k) + committed).repeat(length)
            at += tiled(length, len(row))
            kept = states.take(row * int64_scalar(2 + k) + committed)
            names, arrays = _OF_STATE, (*arrays, slot_accepted.take(row), kept, conv.take(at))
        self._recorder.capture("state", step, requests, names, arrays)

    def drafted(self, view: View, step: int, requests: Requests) -> None:
        """Copy drafter-specific variables: predictions, recurrent states, carried hidden states."""
        if self._traits.carries_hidden_state:
            self._capture_hidden_states(view, step, requests)
        if self._traits.has_model:
            self._draft_model(view, step, requests)

    def _capture_hidden_states(self, view: View, step: int, requests: Requests) -> None:
        record = self._recorder.capture

        def look(carried: Array, state_slot: Array) -> None:
            record("drafted", step, requests, ("carried",), (carried[np.maximum(state_slot, 0)],))

        self._compute.capture(look, self._memory.carried.all, view.state_slot)

    def _draft_model(self, view: View, step: int, requests: Requests) -> None:
        spec, memory, record = self._spec, self._memory, self._recorder.capture
        k, width = spec.num_speculative_tokens, spec.conv_width

        def look(own: Array, state_slot: Array, accepted: Array, states: Array, conv: Array) -> None:
            names, arrays = ["own"], [own]
            if spec.layers == "hybrid":
                row, committed = np.maximum(state_slot, 0), np.clip(accepted, 0, 1 + k)
                window = (row * (width + k) + committed)[:, None] + np.arange(width - 1)
                names += ["drafter_state", "drafter_window"]
                arrays += [states[row * (2 + k) + committed], conv[window].ravel()]
            record("drafted", step, requests, names, arrays)

        caches = (memory.drafter_states.all, memory.drafter_conv.all)
        self._compute.capture(look, view.own, view.state_slot, view.accepted, *caches)

    def block_states(self, view: View, step: int, requests: Requests) -> None:
        """Copy the recurrent states stored with the blocks that a step's rows may write."""
        spec, max_blocks = self._spec, self._memory.max_blocks
        size, length = spec.block_size, spec.conv_width - 1
        columns = np.arange(num_block_columns(size, spec.num_speculative_tokens))
        record = self._recorder.capture

        def look(computed: Array, scheduled: Array, drafts: Array, table: Array, states: Array, windows: Array) -> None:
            first = np.maximum(computed + scheduled - drafts - 2, 0) // size
            column = np.minimum(first[:, None] + columns, max_blocks - 1)
            block = np.maximum(np.take_along_axis(table.reshape(-1, max_blocks), column, axis=1), 0).ravel()
            arrays = (states[block], windows.reshape(-1, length)[block].ravel())
            record("kept", step, requests, ("block_state", "block_window"), arrays)

        memory = self._memory
        self._compute.capture(
            look,
            view.num_computed,
            view.num_scheduled,
            view.num_drafts,
            view.block_table,
            memory.block_states.all,
            memory.block_windows.all,
        )

    def caches(self, step: int, request: int, blocks: list[int], point: str) -> None:
        """Copy the KV cache content of a request's blocks."""
        size = self._spec.block_size
        slots = (np.array(blocks, dtype=np.int64)[:, None] * size + np.arange(size)).ravel()
        record, memory, chosen = self._recorder.capture, self._memory, list(blocks)
        is_aligned, length = self._spec.is_aligned, self._spec.conv_width - 1

        def look(kv: Array, drafter_kv: Array, states: Array, windows: Array) -> None:
            names, arrays = ["kv_at_end", "drafter_kv_at_end"], [kv[slots], drafter_kv[slots]]
            if is_aligned:
                names += ["block_state_at_end", "block_window_at_end"]
                arrays += [states[chosen], windows.reshape(-1, length)[chosen].ravel()]
            record(point, step, (request,), names, arrays)

        self._compute.capture(
            look, memory.kv.all, memory.drafter_kv.all, memory.block_states.all, memory.block_windows.all
        )


def hashes(logits: Array, vocab_size: int) -> Array:
    """Return a 64-bit hash of each row of logits: the sum of its float bits times 1, 3, 5 ..."""
    bits = logits.view(np.uint32).reshape(-1, vocab_size).astype(np.uint64)
    # NaN has many bit patterns; the one that an op produces depends on the device.
    bits[np.isnan(logits).reshape(bits.shape)] = NAN_BITS
    return bits @ (2 * np.arange(vocab_size, dtype=np.uint64) + np.uint64(1))
