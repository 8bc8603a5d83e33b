"""Compare vLLM's kernels that count sampled tokens and prepare inputs with our ops.

vLLM's block tables hold int32 and the null block 0 where ours hold int64 and PAD_BLOCK; the tables are translated.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from vllm.v1.spec_decode import utils as v1
from vllm.v1.worker import block_table as v1_tables
from vllm.v1.worker.gpu import block_table as v2_tables
from vllm.v1.worker.gpu import input_batch as v2

from benchmarks.conformance.vllm_kernels.comparison import Array, Comparison, Found, Ours
from tests.workers.kernels.cases import count_sampled, draft_slots, prepare_inputs
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.sentinels import NO_PREVIOUS_ROW, PAD_SLOT

NOTHING_VALID = "a row that is not discarded but sampled no token"
NEGATIVE = "a sampled token id below -1"
PAST_THE_END = "a draft token past the end of the model"
AFTER_THE_END = "a draft token that follows one past the end of the model"
NO_BLOCK = "a position without a block"
NO_ID = "an invalid token id: unknown to the host, or a draft token that was not proposed"
CHUNK_BEFORE_DRAFTS = "a previous step with draft tokens after more than one token"
# Additional columns: a row of a block table is wide enough for any position.
_MORE_BLOCKS = 8
_POISON = 1 << 30


def _int32(values: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int32)


def _int64(values: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int64)


def _starts(query_start: Array, num_scheduled: Array, rows: Array) -> torch.Tensor:
    """Return `query_start_loc` of the real rows, including the end of the last row."""
    return _int32([*query_start[rows], query_start[rows[-1]] + num_scheduled[rows[-1]]])


def _tables(block_table: Array, num_rows: int) -> torch.Tensor:
    """Return random block tables in the layout of vLLM's kernels."""
    table = block_table.reshape(num_rows, -1)
    return _int32(np.pad(np.maximum(table, 0), ((0, 0), (0, _MORE_BLOCKS))))


def next_tokens_v1(ours: Ours) -> Iterator[Found]:
    """Compare eagle_prepare_next_token_padded_kernel: valid tokens and next input token."""
    for case in count_sampled.cases():
        found, rows = ours(case), np.flatnonzero(case.num_scheduled > 0)
        tokens, counts = _next_tokens_v1(case, rows)
        for at, row in enumerate(rows.tolist()):
            theirs = [int(counts[at]), int(tokens[at])]
            yield Found(
                _sampled_condition(case, row), [int(found["valid"][row]), int(found["next_tokens"][row])], theirs
            )


def _next_tokens_v1(case: CountSampled, rows: Array) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, counts = torch.zeros(len(rows), dtype=torch.int64), torch.zeros(len(rows), dtype=torch.int32)
    sampled = _int64(case.sampled.reshape(-1, case.width)[rows])
    discard = torch.tensor(case.discard[rows] > 0)
    v1._eagle_prepare_next_token_padded(
        sampled,
        discard,
        _int64(case.backup[rows]),
        tokens,
        counts,
        case.vocab_size,
        case.width,
        len(rows),
        sampled.stride(0),
        BLOCK_SIZE_TOKENS=v1.next_power_of_2(case.width),
    )
    return tokens, counts


def _sampled_condition(case: CountSampled, row: int) -> str:
    sampled = case.sampled.reshape(-1, case.width)[row]
    if case.discard[row] > 0:
        return ""
    if (sampled < -1).any():
        return NEGATIVE
    is_token = (sampled >= 0) & (sampled < case.vocab_size)
    return "" if is_token.any() else NOTHING_VALID


def token_index_v1(ours: Ours) -> Iterator[Found]:
    """Compare eagle_prepare_inputs_padded_kernel: the index of each row's last accepted token."""
    for case in count_sampled.cases():
        found, rows = ours(case), np.flatnonzero(case.num_scheduled > 0)
        index, rejected = torch.zeros(len(rows), dtype=torch.int32), torch.zeros(len(rows), dtype=torch.int32)
        v1._eagle_prepare_inputs_padded(
            _int32(np.cumsum(case.num_drafts[rows])),
            _int32(found["valid"][rows]),
            _starts(case.query_start, case.num_scheduled, rows),
            index,
            rejected,
            len(rows),
        )
        for at, row in enumerate(rows.tolist()):
            # Without draft tokens one token is always kept.
            is_empty = found["valid"][row] == 0 and case.num_drafts[row] > 0
            yield Found(NOTHING_VALID if is_empty else "", found["token_index"][row], int(index[at]))


def slots_of_drafts_v1(ours: Ours) -> Iterator[Found]:
    """Compare eagle_step_slot_mapping_metadata_kernel, once for each draft token fed back."""
    for case in _ending(draft_slots.cases()):
        found, rows = ours(case)["draft_slots"], np.flatnonzero(case.num_scheduled > 0)
        own, table = found.reshape(len(case.num_scheduled), -1), _tables(case.block_table, len(case.num_scheduled))
        positions = _int64(case.positions[case.token_index[rows]])
        lengths, first = (positions + 1).to(torch.int32), positions.tolist()
        for column in range(case.num_proposed - 1):
            slots = torch.zeros(len(case.num_scheduled), dtype=torch.int64)
            v1.eagle_step_update_slot_mapping_and_metadata(
                positions, table[rows], lengths, case.block_size, case.max_model_len, positions, slots, len(slots)
            )
            for at, row in enumerate(rows.tolist()):
                yield Found(_fed_condition(case, row, first[at] + 1 + column), own[row, column], int(slots[at]))
            yield Found("", own[len(rows) :, column], slots[len(rows) :].tolist())


def _ending(cases: Iterable[DraftSlots]) -> Iterator[DraftSlots]:
    """Yield each case, and a copy with max_model_len at the end of the longest row."""
    for case in cases:
        yield case
        rows = case.num_scheduled > 0
        yield replace(case, max_model_len=1 + int(case.positions[case.token_index[rows]].max()))


def _fed_condition(case: DraftSlots, row: int, position: int) -> str:
    if position > case.max_model_len:
        return AFTER_THE_END
    if position == case.max_model_len:
        return PAST_THE_END
    block = case.block_table[row * case.max_blocks + position // case.block_size]
    return "" if block >= 0 else NO_BLOCK


def slots_v1(ours: Ours) -> Iterator[Found]:
    """Compare the v1 model runner's slot mapping, including padding tokens."""
    for case in prepare_inputs.cases():
        found, rows = ours(case), np.flatnonzero(case.num_scheduled > 0)
        num_tokens, theirs = int(case.num_scheduled.sum()), torch.zeros(len(case.token_row), dtype=torch.int64)
        table = _tables(case.block_table, len(case.num_scheduled))
        v1_tables._COMPUTE_SLOT_MAPPING_KERNEL(
            len(rows),
            num_tokens,
            len(theirs),
            _starts(case.query_start, case.num_scheduled, rows),
            _int64(found["positions"][:num_tokens]),
            table,
            table.stride(0),
            theirs,
            case.block_size,
            1,
            0,
            1,
        )
        yield from _found_slots(case, found, theirs)


def slots_v2(ours: Ours) -> Iterator[Found]:
    """Compare the v2 model runner's slot mapping, including padding tokens."""
    for case in prepare_inputs.cases():
        found, rows = ours(case), np.flatnonzero(case.num_scheduled > 0)
        theirs, table = (
            torch.zeros((1, len(case.token_row)), dtype=torch.int64),
            _tables(case.block_table, len(case.num_scheduled)),
        )
        v2_tables._compute_slot_mappings_kernel[(1, len(rows) + 1)](
            theirs.shape[1],
            _int32(rows),
            _starts(case.query_start, case.num_scheduled, rows),
            _int64(found["positions"]),
            torch.tensor([table.data_ptr()], dtype=torch.uint64),
            _int64([table.stride(0)]),
            _int32([case.block_size]),
            torch.tensor([True]),
            torch.tensor([False]),
            theirs,
            theirs.stride(0),
            0,
            CP_SIZE=1,
            CP_INTERLEAVE=1,
            PAD_ID=PAD_SLOT,
            TRITON_BLOCK_SIZE=1024,
        )
        yield from _found_slots(case, found, theirs[0])


def _found_slots(case: PrepareInputs, found: dict[str, Array], theirs: torch.Tensor) -> Iterator[Found]:
    for token, row in enumerate(case.token_row.tolist()):
        column = int(found["positions"][token]) // case.block_size
        has_block = row < 0 or (column < case.max_blocks and case.block_table[row * case.max_blocks + column] >= 0)
        yield Found("" if has_block else NO_BLOCK, found["slots"][token], int(theirs[token]))


def inputs_v2(ours: Ours) -> Iterator[Found]:
    """Compare positions, lengths and ids of prepare_pos_seq_lens and its successor.

    The successor is combine_sampled_and_draft_tokens.
    """
    for case in prepare_inputs.cases():
        found, rows = ours(case), np.flatnonzero(case.num_scheduled > 0)
        num_rows, starts = len(case.num_scheduled), _starts(case.query_start, case.num_scheduled, rows)
        positions, lengths = (
            torch.zeros(len(case.token_row), dtype=torch.int64),
            torch.ones(num_rows, dtype=torch.int32),
        )
        v2.prepare_pos_seq_lens(_int32(rows), starts, _int32(found["num_computed"]), positions, lengths)
        yield Found("", found["seq_lens"], lengths.numpy())
        ids = _ids_v2(case, rows, starts, lengths)
        for token in np.flatnonzero(case.token_row >= 0):
            yield Found("", found["positions"][token], int(positions[token]))
            id_of = int(ids[token])
            condition = "" if 0 <= id_of < case.vocab_size else NO_ID
            yield Found(condition, found["input_ids"][token], id_of)


def _ids_v2(case: PrepareInputs, rows: Array, starts: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return input ids; a row of the previous step counts as past its prefill.

    Any other row counts as in its prefill.
    """
    num_rows, k = len(case.num_scheduled), case.num_speculative_tokens
    previous = case.prev_position
    continues = previous != NO_PREVIOUS_ROW
    num_logits = np.where(continues, 1 + case.num_drafts, 1)
    prefill = np.where(continues, lengths.numpy() - num_logits, lengths.numpy())
    last = np.where(continues, case.next_tokens[previous], 0)
    drafts = np.zeros((num_rows, max(k, 1)), dtype=np.int64)
    drafts[:, :k] = case.draft_tokens.reshape(-1, k)[previous] if k else 0
    ids = _int64(case.host_ids)
    v2.combine_sampled_and_draft_tokens(
        ids,
        _int32(rows),
        _int64(last),
        starts,
        lengths,
        _int32(prefill),
        _int64(drafts),
        _int32([0, *np.cumsum(num_logits[rows])]),
        int(num_logits[rows].sum()),
    )
    return ids


def counts_v1(ours: Ours) -> Iterator[Found]:
    """Compare update_num_computed_tokens_for_batch_change: computed tokens per row.

    The host assumes that all draft tokens are accepted.
    """
    for case in prepare_inputs.cases():
        found, rows = ours(case)["num_computed"], np.flatnonzero(case.num_scheduled > 0)
        previous = case.prev_position[rows]
        continues = previous != NO_PREVIOUS_ROW
        optimistic = case.prev_num_computed[previous] + case.prev_num_scheduled[previous]
        host = np.where(continues, optimistic, case.computed_host[rows])
        # Unused rows hold poison, which exceeds int32.
        computed = _int32(np.clip(case.prev_num_computed, -_POISON, _POISON))
        v1.update_num_computed_tokens_for_batch_change(
            computed,
            _int32(np.ones(len(rows))),
            _int64(previous),
            _int32(np.clip(case.prev_valid, -_POISON, _POISON)),
            _int32(np.clip(case.prev_num_drafts, -_POISON, _POISON)),
            _int32(host),
        )
        for at, row in enumerate(rows.tolist()):
            condition = ""
            if continues[at]:
                drafts, valid = case.prev_num_drafts[previous[at]], case.prev_valid[previous[at]]
                more = case.prev_num_scheduled[previous[at]] - 1 - drafts
                condition = CHUNK_BEFORE_DRAFTS if drafts and more else NOTHING_VALID if not (drafts or valid) else ""
            yield Found(condition, found[row], int(computed[at]))


def counts_v2(ours: Ours) -> Iterator[Found]:
    """Compare get_num_sampled_and_rejected and post_update: computed tokens after verification."""
    for case in prepare_inputs.cases():
        rows = np.flatnonzero((case.num_scheduled > 0) & (case.prev_position != NO_PREVIOUS_ROW))
        if not len(rows):
            continue
        found, previous = ours(case)["num_computed"][rows], case.prev_position[rows]
        scheduled, drafts, valid = (
            values[previous] for values in (case.prev_num_scheduled, case.prev_num_drafts, case.prev_valid)
        )
        width, places = 1 + int(drafts.max()), _int32(np.arange(len(rows)))
        computed = _int32(case.prev_num_computed[previous])
        sampled, rejected = v2.get_num_sampled_and_rejected(
            _int32(valid),
            _int32(np.ones(len(rows))),
            _int32([0, *np.cumsum(1 + drafts)]),
            places,
            _int32(np.ones(len(rows))),
        )
        v2.post_update(
            places,
            computed,
            _int64(np.zeros((len(rows), 1))),
            None,
            _int64(np.zeros((len(rows), width))),
            sampled,
            rejected,
            _int32([0, *np.cumsum(scheduled)]),
            _int32(np.zeros((len(rows), width))),
            _int32(np.zeros(len(rows))),
        )
        for own, their in zip(found, computed.tolist(), strict=True):
            yield Found("", own, their)


def last_tokens_v2(ours: Ours) -> Iterator[Found]:
    """Compare post_update: the next input token of a row.

    Before the update it is the first token that the row verified.
    """
    for case in count_sampled.cases():
        found, rows = ours(case), np.flatnonzero((case.num_scheduled > 0) & (case.discard == 0))
        if not len(rows):
            continue
        first = case.query_start[rows] + case.num_scheduled[rows] - 1 - case.num_drafts[rows]
        last, zeros = _int64(case.input_ids[first])[:, None], np.zeros(len(rows))
        v2.post_update(
            _int32(np.arange(len(rows))),
            _int32(zeros),
            last,
            None,
            _int64(case.sampled.reshape(-1, case.width)[rows]),
            _int32(found["valid"][rows]),
            _int32(zeros),
            None,
            _int64(np.zeros((len(rows), case.width))),
            _int32(zeros),
        )
        for at, row in enumerate(rows.tolist()):
            yield Found("", found["next_tokens"][row], int(last[at, 0]))


_V1, _V2 = "spec_decode/utils.py", "worker/gpu/input_batch.py"
COMPARISONS = (
    Comparison("eagle_prepare_next_token_padded_kernel", _V1, "count_sampled: valid, next_tokens", next_tokens_v1),
    Comparison("eagle_prepare_inputs_padded_kernel", _V1, "count_sampled: token_index", token_index_v1),
    Comparison("eagle_step_slot_mapping_metadata_kernel", _V1, "draft_slots", slots_of_drafts_v1),
    Comparison("update_num_computed_tokens_for_batch_change", _V1, "prepare_inputs: num_computed", counts_v1),
    Comparison("_compute_slot_mapping_kernel", "worker/block_table.py", "prepare_inputs: slots", slots_v1),
    Comparison("_compute_slot_mappings_kernel", "worker/gpu/block_table.py", "prepare_inputs: slots", slots_v2),
    Comparison(
        "_prepare_pos_seq_lens_kernel, _combine_sampled_and_draft_tokens_kernel",
        _V2,
        "prepare_inputs: positions, seq_lens, input_ids",
        inputs_v2,
    ),
    Comparison(
        "_get_num_sampled_and_rejected_kernel, _post_update_kernel", _V2, "prepare_inputs: num_computed", counts_v2
    ),
    Comparison("_post_update_kernel", _V2, "count_sampled: next_tokens", last_tokens_v2),
)
