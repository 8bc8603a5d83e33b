"""Faults in drafts that are drawn, and in what they were drawn from, all in device ops: on the NumPy tier alone."""

from dataclasses import replace

import numpy as np

from workers.engine.parts import Parts
from workers.faults.fault import Fault, Reached, in_place_of, op_like
from workers.kernels.arithmetic.numpy import LOGIT_SHIFT, embed, mix, vocabulary
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain
from workers.kernels.draw_noise.definition import SELECT_STREAM
from workers.kernels.draw_noise.numpy import philox, uniform
from workers.kernels.sentinels import PAD_STATE_SLOT


def _padding_writes_draft_logits(parts: Parts, reached: Reached) -> Parts:
    # State slot of each row index when it was last in a batch.
    slots: dict[int, int] = {}

    def body(given: DrawnChain) -> None:
        parts.drawn_chain(given)
        num_real = int(np.count_nonzero(given.num_scheduled))
        slots.update(enumerate(given.state_slot[:num_real].tolist()))
        lines = given.draft_logits.reshape(-1, given.num_speculative_tokens, given.vocab_size)
        of_padding = (mix(embed(np.zeros(1, dtype=np.int64)) + vocabulary(given.vocab_size)) >> LOGIT_SHIFT).astype(
            np.float32
        )
        draws = (given.temperature_bits > 0) & (given.point_mass == 0) & (given.valid > 0)
        drawn = set(given.state_slot[draws].tolist()) - {PAD_STATE_SLOT}
        for row in range(num_real, len(given.num_scheduled)):
            slot = slots.get(row, PAD_STATE_SLOT)
            if slot in drawn and given.num_proposed:
                reached()
            if slot != PAD_STATE_SLOT:
                lines[slot, : given.num_proposed] = of_padding

    return replace(parts, drawn_chain=op_like(parts.drawn_chain, body))


@in_place_of("draft_noise")
def _noise_of_selection(parts: Parts, reached: Reached, given: DraftNoise) -> None:
    reached()
    k = given.num_speculative_tokens
    row = np.arange(len(given.seeds)).repeat(k)
    place = (given.positions.take(given.token_index) + 2)[row] + np.tile(np.arange(k), len(given.seeds))
    streams = np.full(len(row), SELECT_STREAM, dtype=np.uint64)
    drawn = philox(given.seeds.astype(np.uint64)[row], place.astype(np.uint64), streams, np.zeros_like(streams))
    given.draft_noise.reshape(-1, NUMBERS_PER_DRAFT)[:] = uniform(drawn[:NUMBERS_PER_DRAFT]).T


FAULTS = (
    Fault(
        id="vllm-47066-padding-draws",
        source="vllm PR #47066",
        symptom="a draft of a request is weighed by the logits of padding, and not by those it was drawn from",
        trigger="rows have left a padded batch: a padding row stands where one that drafts now elsewhere stood last",
        plane="drafts",
        requires=(("draft_sampling", "probabilistic"), ("drafter", "draft_model"), ("pad", True), ("max_num_seqs", 4)),
        apply=_padding_writes_draft_logits,
    ),
    Fault(
        id="vllm-54282-noise-of-selection",
        source="vllm PR #54282 (from #47386)",
        symptom="what follows a rejected draft is drawn with the noise that the draft was drawn with",
        trigger="drafts of a request at a temperature are drawn: the key of their noise is that of selected tokens",
        plane="drafts",
        requires=(("draft_sampling", "probabilistic"), ("drafter", "draft_model")),
        apply=_noise_of_selection,
    ),
)
