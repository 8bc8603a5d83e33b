"""Faults in drafters: KV cache, first position, order, noise and logits of draft tokens.

Faults in device ops exist only on the NumPy tier.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow
from workers.faults.fault import Reached, fault, in_place_of, op_like
from workers.kernels.arithmetic.numpy import LOGIT_SHIFT, embed, mix, vocabulary_terms
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.dflash.definition import DflashBlock
from workers.kernels.draft_model.definition import DraftModelPass
from workers.kernels.draft_sampling.definition import NUMBERS_PER_DRAFT, DraftNoise, DrawnChain
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.drafter_limit.definition import LimitDrafts
from workers.kernels.draw_noise.definition import SELECT_STREAM
from workers.kernels.draw_noise.numpy import philox, uniform
from workers.kernels.eagle.definition import DraftChain
from workers.kernels.medusa.definition import MedusaHeads
from workers.kernels.mtp.definition import MtpPass
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN, PAD_SLOT, PAD_STATE_SLOT


@fault(
    id="xllm-960-bonus-hole",
    source="xllm PR #960",
    symptom="the draft model's KV cache lacks the last draft token after all were accepted",
    trigger="all draft tokens of a row are accepted",
    plane="drafts",
    requires=(("drafter", "draft_model"),),
)
@in_place_of("draft_model_pass")
def _hole_behind_a_full_run(functions: EngineFunctions, reached: Reached, given: DraftModelPass) -> None:
    last = given.query_start + given.num_scheduled - 1
    full = (given.num_drafts > 0) & (given.token_index == last)
    slots = given.slots.copy()
    if full.any():
        reached()
        slots[last[full]] = PAD_SLOT
    functions.draft_model_pass(replace(given, slots=slots))


@fault(
    id="ikllama-2222-carried-word",
    source="ik_llama.cpp PR #2222",
    symptom="the first token of a step uses the last hidden state of this step, not of the previous step",
    trigger="a row continues from an earlier step: a prompt in chunks, or any decode",
    plane="drafts",
    requires=(("drafter", "mtp"), ("prefix_cache", False)),
)
@in_place_of("mtp_pass")
def _carried_before_it_is_read(functions: EngineFunctions, reached: Reached, given: MtpPass) -> None:
    real = given.state_slot >= 0
    last = given.token_index - (given.accepted == 0)
    keeps = real & (last >= given.query_start)
    if (keeps & (given.num_computed > 0)).any():
        reached()
    given.carried[given.state_slot[keeps]] = given.hidden[last[keeps]]
    functions.mtp_pass(given)


@fault(
    id="ikllama-2296-block-too-early",
    source="ik_llama.cpp PR #2296",
    symptom="a draft block starts at the last kept token, does not attend to it, and overwrites it",
    trigger="always, once a block is drafted",
    plane="drafts",
    requires=(("drafter", "dflash"),),
)
@in_place_of("dflash_block")
def _block_one_position_early(functions: EngineFunctions, reached: Reached, given: DflashBlock) -> None:
    if given.num_proposed and (given.valid > 0).any():
        reached()
    functions.dflash_block(replace(given, positions=np.maximum(given.positions - 1, 0)))


@fault(
    id="ascend-14024-short-mapping",
    source="vllm-ascend PR #14024; in vllm-ascend the buffer had the size of the largest batch",
    symptom="a drafter writes draft tokens to stale slots, of kept tokens or of another request",
    trigger="K > 3, all rows decode, and the slot mapping covers padded tokens and two draft tokens per row",
    plane="drafts",
    requires=(("drafter", "eagle"), ("num_speculative_tokens", 4)),
)
@in_place_of("draft_slots")
def _mapping_of_two_drafts_a_row(functions: EngineFunctions, reached: Reached, given: DraftSlots) -> None:
    held = given.draft_slots.copy()
    functions.draft_slots(given)
    columns = np.arange(len(held)).reshape(-1, given.num_speculative_tokens)
    fed = columns[given.num_scheduled > 0, : max(given.num_proposed - 1, 0)].ravel()
    # The slots of the scheduled tokens come first in the same buffer.
    room = len(given.positions) + 2 * len(given.token_index) - int(given.num_scheduled.sum())
    lost = fed[room:]
    if not np.array_equal(given.draft_slots[lost], held[lost]):
        reached()
    given.draft_slots[lost] = held[lost]


@fault(
    id="trtllm-7803-drafter-row",
    source="TensorRT-LLM PR #7803",
    symptom="a request gets the draft tokens of another request, at its row in the drafter's smaller batch",
    trigger="a row that samples follows a row that does not, in a step that drafts",
    plane="drafts",
    requires=(("drafter", "eagle"),),
)
@in_place_of("draft_chain")
def _drafts_by_the_drafters_row(functions: EngineFunctions, reached: Reached, given: DraftChain) -> None:
    functions.draft_chain(given)
    rows = np.flatnonzero(given.valid > 0)
    drafts = given.draft_tokens.reshape(len(given.valid), given.num_speculative_tokens)
    if given.num_proposed and not np.array_equal(rows, np.arange(len(rows))):
        reached()
        drafts[: len(rows)] = drafts[rows]
        drafts[len(rows) :] = NO_DRAFT


@fault(
    id="vllm-49343-past-the-drafter",
    source="vllm PR #49343, issues #48894 and #24662",
    symptom="a drafter runs past its last position",
    trigger="a sequence comes within K tokens of the drafter's length, which is below the target's",
    plane="drafts",
    requires=(("drafter", "eagle"), ("drafter_max_len", 12)),
)
@in_place_of("limit_drafts")
def _past_the_last_position(functions: EngineFunctions, reached: Reached, given: LimitDrafts) -> None:
    drafts = given.draft_tokens.copy()
    functions.limit_drafts(given)
    if not np.array_equal(given.draft_tokens, drafts):
        reached()
    given.draft_tokens[:] = drafts


@fault(
    id="sglang-28254-sampled-behind-a-chunk",
    source="sglang PR #28254; in SGLang only after chunks that end past the prompt of a resumed request",
    symptom="the drafter continues from the discarded sample after a prefill chunk, not from the known token",
    trigger="a prefill chunk that is not the last samples a token other than the last known one",
    plane="inputs",
)
@in_place_of("count_sampled")
def _sampled_token_behind_a_chunk(functions: EngineFunctions, reached: Reached, given: CountSampled) -> None:
    functions.count_sampled(given)
    sampled = given.sampled.reshape(-1, given.width)[:, 0]
    wrong = (given.discard > 0) & (sampled != NO_TOKEN) & (sampled != given.next_tokens)
    if wrong.any():
        reached()
    given.next_tokens[wrong] = sampled[wrong]


@fault(
    id="mlxvlm-2096-last-chunk-alone",
    source="mlx-vlm PR #2096, issue #2022",
    symptom="the drafter's KV cache has only the last prefill chunk of a prompt",
    trigger="a step runs only prefill chunks that are not the last",
    plane="drafts",
    requires=(("drafter", "eagle"),),
)
@in_place_of("runs_drafter")
def _last_chunk_alone(functions: EngineFunctions, reached: Reached, rows: Sequence[PlanRow]) -> bool:
    if not all(row.discard for row in rows):
        return functions.runs_drafter(rows)
    reached()
    return False


@fault(
    id="vllm-extract-first-column",
    source="vllm, proposer `extract_hidden_states` (derived from its source; no report)",
    symptom="a request counts one token where two were accepted",
    trigger="the sampled token is sampled again, so that the draft token is accepted",
    plane="counts",
    requires=(("drafter", "extract_hidden_states"), ("num_speculative_tokens", 1)),
)
@in_place_of("count_sampled")
def _first_column_alone(functions: EngineFunctions, reached: Reached, given: CountSampled) -> None:
    sampled = given.sampled.reshape(-1, given.width).copy()
    if (sampled[:, 1:] != NO_TOKEN).any():
        reached()
    sampled[:, 1:] = NO_TOKEN
    functions.count_sampled(replace(given, sampled=sampled.ravel()))


@fault(
    id="vllm-medusa-last-scheduled",
    source="vllm, the proposer of medusa (PR #17956 counts accepted tokens to choose the row; no report)",
    symptom="medusa heads use the hidden state of a row's last token, which may have been rejected",
    trigger="a draft token of a row is rejected, and the row continues",
    plane="drafts",
    requires=(("drafter", "medusa"), ("depth", 1)),
)
@in_place_of("medusa_heads")
def _heads_over_the_last_scheduled_token(functions: EngineFunctions, reached: Reached, given: MedusaHeads) -> None:
    last = np.cumsum(given.num_scheduled) - 1
    wrong = (given.valid > 0) & (given.token_index != last)
    hidden = given.hidden.copy()
    if given.num_proposed and wrong.any():
        reached()
        hidden[given.token_index[wrong]] = given.hidden[last[wrong]]
    functions.medusa_heads(replace(given, hidden=hidden))


@fault(
    id="vllm-47066-padding-draws",
    source="vllm PR #47066",
    symptom="a draft token is verified with the logits of a padding row, not with its own draft logits",
    trigger="rows have left a padded batch: a padding row has the former row of a request that drafts elsewhere",
    plane="drafts",
    requires=(("draft_sampling", "probabilistic"), ("drafter", "draft_model"), ("pad", True), ("max_num_seqs", 4)),
)
def _padding_writes_draft_logits(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    # State slot of each row index when it was last in a batch.
    slots: dict[int, int] = {}

    def body(given: DrawnChain) -> None:
        functions.drawn_chain(given)
        num_real = int(np.count_nonzero(given.num_scheduled))
        slots.update(enumerate(given.state_slot[:num_real].tolist()))
        lines = given.draft_logits.reshape(-1, given.num_speculative_tokens, given.vocab_size)
        of_padding = (
            mix(embed(np.zeros(1, dtype=np.int64)) + vocabulary_terms(given.vocab_size)) >> LOGIT_SHIFT
        ).astype(np.float32)
        draws = (given.temperature_bits > 0) & (given.point_mass == 0) & (given.valid > 0)
        drawn = set(given.state_slot[draws].tolist()) - {PAD_STATE_SLOT}
        for row in range(num_real, len(given.num_scheduled)):
            slot = slots.get(row, PAD_STATE_SLOT)
            if slot in drawn and given.num_proposed:
                reached()
            if slot != PAD_STATE_SLOT:
                lines[slot, : given.num_proposed] = of_padding

    return replace(functions, drawn_chain=op_like(functions.drawn_chain, body))


@fault(
    id="vllm-54282-noise-of-selection",
    source="vllm PR #54282 (from #47386)",
    symptom="the token after a rejected draft token is sampled with the draft token's noise",
    trigger="draft tokens are sampled with a temperature: their noise has the key of selected tokens",
    plane="drafts",
    requires=(("draft_sampling", "probabilistic"), ("drafter", "draft_model")),
)
@in_place_of("draft_noise")
def _noise_of_selection(functions: EngineFunctions, reached: Reached, given: DraftNoise) -> None:
    reached()
    k = given.num_speculative_tokens
    row = np.arange(len(given.seeds)).repeat(k)
    place = (given.positions.take(given.token_index) + 2)[row] + np.tile(np.arange(k), len(given.seeds))
    streams = np.full(len(row), SELECT_STREAM, dtype=np.uint64)
    drawn = philox(given.seeds.astype(np.uint64)[row], place.astype(np.uint64), streams, np.zeros_like(streams))
    given.draft_noise.reshape(-1, NUMBERS_PER_DRAFT)[:] = uniform(drawn[:NUMBERS_PER_DRAFT]).T
