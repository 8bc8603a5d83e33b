"""What a run captures from the device, as part of the op before: copies for the recorder, nothing else."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.spec import EngineSpec
from workers.engine.memory import Memory, View
from workers.lanes.simulated import Lane
from workers.observation import Recorder

Array = NDArray[Any]
Requests = tuple[int, ...]


class Probes:
    """Captures of one engine, labelled by the rows as they were when the step was enqueued."""

    def __init__(self, spec: EngineSpec, memory: Memory, compute: Lane, recorder: Recorder) -> None:
        self._spec = spec
        self._memory = memory
        self._compute = compute
        self._recorder = recorder

    def inputs(self, view: View, step: int, requests: Requests) -> None:
        """Capture what the model is about to be fed."""
        names = ("num_computed", "accepted_read", "seq_lens", "positions", "slots", "scheduled_drafts", "input_ids")
        accepted = view.accepted_host if self._spec.accepted_counts == "host" else view.accepted_read
        record = self._recorder.capture
        self._compute.probe(
            lambda *arrays: record("inputs", step, requests, names, arrays),
            view.num_computed,
            accepted,
            view.seq_lens,
            view.positions,
            view.slots,
            view.scheduled_drafts,
            view.input_ids,
        )

    def sampled(self, view: View, step: int, requests: Requests) -> None:
        """Capture what the model computed, what was sampled from it, and what was counted."""
        names = ("kv", "attention", "hidden", "sampled", "accepted", "valid", "next_tokens")
        record = self._recorder.capture
        self._compute.probe(
            lambda kv, slots, *arrays: record("sampled", step, requests, names, (kv[np.maximum(slots, 0)], *arrays)),
            self._memory.kv.all,
            view.slots,
            view.attended,
            view.hidden,
            view.sampled,
            view.accepted,
            view.valid,
            view.next_tokens,
        )

    def state(self, view: View, step: int, requests: Requests) -> None:
        """Capture the drafter's cache, recurrent state and drafts at the end of a step."""
        hybrid = self._spec.layers == "hybrid"
        names = ["drafter_kv", "raw", "proposed"]
        names += ["slot_accepted", "state", "window"] if hybrid else []
        k, width = self._spec.num_speculative_tokens, self._spec.conv_width
        record = self._recorder.capture

        def look(
            slots: Array,
            drafter_kv: Array,
            raw: Array,
            drafts: Array,
            state_slot: Array,
            accepted: Array,
            slot_accepted: Array,
            states: Array,
            conv: Array,
        ) -> None:
            arrays = [drafter_kv[np.maximum(slots, 0)], raw, drafts]
            if hybrid:
                row = np.maximum(state_slot, 0)
                committed = np.clip(accepted, 0, 1 + k)
                start = row * (width + k) + committed
                window = conv[start[:, None] + np.arange(width - 1)].ravel()
                arrays += [slot_accepted[row], states[row * (2 + k) + committed], window]
            record("state", step, requests, names, arrays)

        memory = self._memory
        self._compute.probe(
            look,
            view.slots,
            memory.drafter_kv.all,
            view.raw,
            view.draft_tokens,
            view.state_slot,
            view.accepted,
            memory.slot_accepted.all,
            memory.states.all,
            memory.conv.all,
        )

    def caches(self, step: int, request: int, blocks: list[int], point: str) -> None:
        """Capture everything in a request's blocks."""
        size = self._spec.block_size
        slots = (np.array(blocks, dtype=np.int64)[:, None] * size + np.arange(size)).ravel()
        record = self._recorder.capture
        self._compute.probe(
            lambda kv, drafter_kv: record(
                point, step, (request,), ("kv_at_end", "drafter_kv_at_end"), (kv[slots], drafter_kv[slots])
            ),
            self._memory.kv.all,
            self._memory.drafter_kv.all,
        )
