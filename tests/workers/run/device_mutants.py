"""Engines with one bug in a device op, and changes that are no bug."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tests.workers.run.mutants import CLEAN, Change, Mutant, fed, never, ran_as, then, with_part
from workers.engine.functions import EngineFunctions
from workers.kernels.arithmetic.numpy import slots_at
from workers.kernels.sentinels import PAD_SLOT


def put(array: Any, value: Any) -> None:
    """Overwrite an array."""
    array[...] = value


def in_this_order(previous: Any) -> Any:
    """Plant a bug: use the current row index in place of the row in the previous step."""
    return np.where(previous >= 0, np.arange(len(previous)), previous)


def in_place(given: Any) -> None:
    """Plant a bug: correct rows in place, so that later rows read corrected values."""
    counts = given.prev_num_computed.copy()
    for row, before in enumerate(given.prev_position):
        counts[row] = given.computed_host[row] if before < 0 else counts[before]
        if before >= 0:
            counts[row] += given.prev_num_scheduled[before] - given.prev_num_drafts[before]
            counts[row] += given.prev_valid[before] - 1
    put(given.num_computed, counts[: len(given.num_computed)])


def slots_of(given: Any, positions: Any, row: Any) -> Any:
    """Return the KV-cache slots of positions in the rows' block tables."""
    length = given.max_blocks * given.block_size
    return slots_at(positions, row * given.max_blocks, given.block_table, given.block_size, given.max_blocks, length)


def optimistic_slots(given: Any) -> None:
    """Plant the bug of vLLM PR #32951: compute the slot mapping from the host's positions."""
    ahead = (given.computed_host - given.num_computed)[given.token_row]
    is_real = given.token_row >= 0
    optimistic = slots_of(given, given.positions + ahead * is_real, given.token_row * is_real)
    put(given.slots, np.where(is_real, optimistic, PAD_SLOT))


def table_of_row_0(given: Any) -> None:
    mapped = slots_of(given, given.positions, given.token_row * 0)
    put(given.slots, np.where(given.token_row >= 0, mapped, PAD_SLOT))


def positions_without_start(given: Any) -> None:
    put(given.positions, np.where(given.token_row < 0, 0, given.positions + given.query_start[given.token_row]))


def drafts_in_this_order(given: Any) -> None:
    """Plant a bug: read next tokens and drafts at the current row index."""
    num_computed, positions, slots = (array.copy() for array in (given.num_computed, given.positions, given.slots))
    CLEAN.prepare_inputs(given.on({"prev_position": in_this_order(given.prev_position)}))
    put(given.num_computed, num_computed)
    put(given.positions, positions)
    put(given.slots, slots)
    put(given.seq_lens, (num_computed + given.num_scheduled) * (given.num_scheduled > 0))


def column_0(given: Any) -> None:
    tokens = given.sampled.reshape(-1, given.width)[:, 0]
    put(given.next_tokens, np.where(given.valid > 0, tokens, given.next_tokens))


def after_rejected(given: Any) -> None:
    put(given.token_index, (given.query_start + given.num_scheduled - 1) * (given.num_scheduled > 0))


def no_bonus(given: Any) -> None:
    tokens = given.sampled.reshape(-1, 1 + given.num_speculative_tokens)
    last = (tokens >= 0).sum(axis=1)
    tokens[np.arange(len(tokens)), np.maximum(last - 1, 0)] = np.where(last > 1, -1, tokens[:, 0])


def accept_everything(given: Any) -> None:
    k = given.num_speculative_tokens
    drafts, tokens = given.scheduled_drafts.reshape(-1, k), given.sampled.reshape(-1, 1 + k)
    rejected = (tokens[:, :k] == -1) & (drafts >= 0) & (tokens[:, :1] >= 0)
    tokens[:, :k][rejected] = drafts[rejected]


def without_shift(given: Any) -> None:
    shifted = np.concatenate([[0], given.input_ids[:-1]])
    CLEAN.draft_first_pass(given.on({"input_ids": shifted}))


def without_attention(given: Any) -> None:
    CLEAN.attention(given.on({"hidden": given.hidden.copy()}))


def position_of_padding(given: Any) -> None:
    put(given.positions, np.where(given.token_row < 0, 1, given.positions))


def padding_stores_its_count(given: Any) -> None:
    if given.state_slot[-1] < 0:
        given.slot_accepted[0] = 0


def overwrites_the_last_kept(given: Any) -> None:
    slots = given.positions[given.token_index]
    blocks = given.block_table.reshape(-1, given.max_blocks)[:, 0]
    given.drafter_kv[(blocks * given.block_size)[(blocks >= 0) & (slots < given.block_size)]] = 0


def table_of_the_first(given: Any) -> Any:
    return np.resize(given.block_table[: given.max_blocks], len(given.block_table))


class Fed(NamedTuple):
    """Mutant that gives one op another value of an argument."""

    name: str
    planes: str
    argument: str
    change: Change


FED: Mapping[str, tuple[Fed, ...]] = {
    "poison": (Fed("the block below", "kv", "blocks", lambda a: np.maximum(a.blocks - 1, 0)),),
    "poison_states": (Fed("the block below", "kv", "blocks", lambda a: np.maximum(a.blocks - 1, 0)),),
    "prepare_inputs": (
        Fed("nothing is taken over", "counts inputs drafts", "prev_position", lambda a: a.prev_position * 0 - 1),
        Fed("by the current row", "counts", "prev_position", lambda a: in_this_order(a.prev_position)),
        Fed("every draft counts as accepted", "counts", "prev_valid", lambda a: a.prev_num_drafts + 1),
        Fed("drafts count as computed", "counts", "prev_num_drafts", lambda a: a.prev_num_drafts * 0),
        Fed("accepted by row", "counts", "state_slot", lambda a: in_this_order(a.state_slot) % len(a.slot_accepted)),
        Fed("no drafts", "drafts", "draft_tokens", lambda a: a.draft_tokens * 0 - 1),
        Fed("no sampled token", "inputs", "next_tokens", lambda a: a.next_tokens * 0),
        Fed("no host tokens", "inputs", "host_ids", lambda a: a.host_ids * 0),
    ),
    "kv_write": (
        Fed("padding into slot 0", "tokens kv", "slots", lambda a: np.maximum(a.slots, 0)),
        Fed("the position after", "tokens kv", "positions", lambda a: a.positions + 1),
    ),
    "attention": (
        Fed("without the token itself", "tokens kv", "positions", lambda a: np.maximum(a.positions - 1, 0)),
        Fed(
            "without the last block",
            "tokens kv",
            "block_table",
            lambda a: np.where(np.roll(a.block_table, -1) < 0, 0, a.block_table),
        ),
    ),
    "cascade_attention": (
        Fed("of another prefix", "tokens kv", "block_table", lambda a: np.roll(a.block_table, 1)),
        Fed("without the token itself", "tokens kv", "positions", lambda a: np.maximum(a.positions - 1, 0)),
    ),
    "recurrent_update": (
        Fed("nothing was accepted", "tokens recurrent", "accepted", lambda a: a.accepted * 0 + 1),
        Fed("one too few accepted", "tokens recurrent", "accepted", lambda a: np.maximum(a.accepted - 1, 0)),
        Fed("from the slot's last owner", "tokens recurrent", "num_computed", lambda a: a.num_computed + 1),
        Fed("windows are not kept", "tokens recurrent", "conv", lambda a: a.conv.copy()),
        Fed("speculative states are not kept", "tokens recurrent", "num_drafts", lambda a: a.num_drafts * 0),
        Fed("padding runs on slot 0", "tokens recurrent", "state_slot", lambda a: np.maximum(a.state_slot, 0)),
    ),
    "state_restore": (
        Fed("the state of block 0", "recurrent tokens", "taken_over", lambda a: np.minimum(a.taken_over, 0)),
        Fed("windows are not restored", "recurrent tokens", "conv", lambda a: a.conv.copy()),
        Fed("states are not restored", "recurrent tokens", "states", lambda a: a.states.copy()),
    ),
    "state_copy": (
        Fed("nothing was rejected", "recurrent", "accepted", lambda a: np.where(a.state_slot < 0, 0, a.num_drafts + 1)),
        Fed("nothing is kept", "recurrent", "block_states", lambda a: a.block_states.copy()),
        Fed("windows are not kept", "recurrent", "block_windows", lambda a: a.block_windows.copy()),
        Fed("as if nothing were computed", "recurrent", "num_computed", lambda a: a.num_computed * 0),
    ),
    "compute_logits": (
        Fed("of the first token", "tokens", "num_scheduled", lambda a: np.minimum(a.num_scheduled, 1 + a.num_drafts)),
        Fed("of the last token", "logits tokens", "num_drafts", lambda a: a.num_drafts * 0),
    ),
    "process_logits": (
        Fed("every column by the first one's history", "logits", "num_drafts", lambda a: a.num_drafts * 0),
        Fed("by slot 0", "logits counts", "state_slot", lambda a: a.state_slot * 0),
    ),
    "apply_masks": (Fed("in other columns", "logits counts", "columns", lambda a: a.columns[::-1]),),
    "token_logprobs": (Fed("of row 0", "logits", "rows", lambda a: a.rows * 0),),
    "rejection_sample": (
        Fed("a sample taken away is kept", "counts", "invalid", lambda a: a.invalid * 0),
        Fed("no draft is accepted", "tokens", "num_drafts", lambda a: a.num_drafts * 0),
    ),
    "count_sampled": (
        Fed("not by slot", "recurrent", "slot_accepted", lambda a: a.slot_accepted.copy()),
        Fed("discarded rows count", "counts", "discard", lambda a: a.discard * 0),
        Fed("the backup of the first row", "inputs", "input_ids", lambda a: np.full_like(a.input_ids, a.backup[0])),
    ),
    "draft_first_pass": (
        Fed("without the sampled token", "drafts", "next_tokens", lambda a: a.next_tokens * 0),
        Fed("nothing is cached", "drafts", "drafter_kv", lambda a: a.drafter_kv.copy()),
    ),
    "draft_slots": (
        Fed("one position early", "drafts", "positions", lambda a: np.maximum(a.positions - 1, 0)),
        Fed("behind rejected tokens", "drafts", "block_table", table_of_the_first),
    ),
    "draft_chain": (
        Fed("after no valid token", "drafts", "valid", lambda a: a.valid * 0 + 1),
        Fed("the script of slot 0", "drafts", "state_slot", lambda a: np.minimum(a.state_slot, 0)),
        Fed("one draft too few", "drafts", "num_proposed", lambda a: max(0, a.num_proposed - 1)),
        Fed("past the last kept token", "drafts", "positions", lambda a: a.positions + 1),
    ),
    "draft_model_pass": (
        Fed("nothing is cached", "drafts", "drafter_kv", lambda a: a.drafter_kv.copy()),
        Fed("speculative states are not kept", "drafts", "num_drafts", lambda a: a.num_drafts * 0),
        Fed("nothing was accepted", "drafts", "accepted", lambda a: a.accepted * 0 + 1),
        Fed("the first token alone", "drafts", "token_index", lambda a: a.query_start),
    ),
    "draft_model_chain": (
        Fed("from the token before the sampled one", "drafts", "positions", lambda a: np.maximum(a.positions - 1, 0)),
        Fed("after no valid token", "drafts", "valid", lambda a: a.valid * 0 + 1),
        Fed("without the script", "drafts", "script", lambda a: a.script * 0),
        Fed("from the state before the last accepted token", "drafts", "accepted", lambda a: a.accepted - 1),
    ),
    "draft_noise": (Fed("of the position after", "drafts", "positions", lambda a: a.positions + 1),),
    "drawn_chain": (
        Fed("as if certain", "drafts", "point_mass", lambda a: a.point_mass * 0 + 1),
        Fed("as if none were", "drafts", "point_mass", lambda a: a.point_mass * 0),
        Fed("nothing is kept", "drafts", "draft_logits", lambda a: a.draft_logits.copy()),
        Fed("without the script", "drafts", "script", lambda a: a.script * 0),
        Fed("from the state before the last accepted token", "drafts", "accepted", lambda a: a.accepted - 1),
    ),
    "verify_drafts": (
        Fed("by the draft logits of rows", "tokens books", "draft_slots", lambda a: in_this_order(a.draft_slots)),
        Fed("as if drafts were certain", "tokens books", "point_mass", lambda a: a.point_mass * 0 + 1),
    ),
    "mtp_pass": (
        Fed("nothing is carried", "drafts", "carried", lambda a: a.carried * np.uint64(0)),
        Fed("what the slot's last owner carried", "drafts", "num_computed", lambda a: a.num_computed + 1),
        Fed("a sample that was taken away is kept", "drafts", "accepted", lambda a: np.maximum(a.accepted, 1)),
        Fed("nothing is cached", "drafts", "drafter_kv", lambda a: a.drafter_kv.copy()),
    ),
    "mtp_chain": (
        Fed("without the sampled token", "drafts", "next_tokens", lambda a: a.next_tokens * 0),
        Fed("the first hidden state of the batch", "drafts", "token_index", lambda a: a.token_index * 0),
    ),
    "dflash_context": (
        Fed("the position after", "drafts", "positions", lambda a: a.positions + 1),
        Fed("nothing is cached", "drafts", "drafter_kv", lambda a: a.drafter_kv.copy()),
    ),
    "dflash_block": (
        Fed("without the sampled token", "drafts", "next_tokens", lambda a: a.next_tokens * 0),
        Fed("a mask is a token", "drafts", "vocab_size", lambda a: 0),
    ),
    "extract_hidden_states": (
        Fed("after no valid token", "drafts", "valid", lambda a: a.valid * 0 + 1),
        Fed("nothing is written", "drafts", "drafter_kv", lambda a: a.drafter_kv.copy()),
    ),
    "medusa_heads": (
        Fed("the first hidden state of the batch", "drafts", "hidden", lambda a: np.full_like(a.hidden, a.hidden[0])),
        Fed("after no valid token", "drafts", "valid", lambda a: a.valid * 0 + 1),
        Fed("one draft too few", "drafts", "num_proposed", lambda a: max(0, a.num_proposed - 1)),
        Fed("one position early", "drafts", "positions", lambda a: np.maximum(a.positions - 1, 0)),
    ),
    "write_tokens": (Fed("nothing is written", "drafts", "drafter_kv", lambda a: a.drafter_kv.copy()),),
    "ngram_search": (
        Fed("without the sampled token", "drafts", "next_tokens", lambda a: a.next_tokens * 0),
        Fed(
            "of the first row",
            "drafts",
            "block_table",
            lambda a: np.resize(a.block_table[: a.max_blocks], len(a.block_table)),
        ),
    ),
    "limit_slots": (Fed("one position too few", "drafts", "drafter_max_len", lambda a: a.drafter_max_len - 1),),
    "limit_drafts": (
        Fed("one position too many", "drafts", "drafter_max_len", lambda a: a.drafter_max_len + 1),
        Fed("one position too few", "drafts", "drafter_max_len", lambda a: a.drafter_max_len - 1),
    ),
}


def instead(part: str, body: Any) -> EngineFunctions:
    """Return the engine's functions with another body for one op."""
    return with_part(part, ran_as(getattr(CLEAN, part), body))


DEVICE_MUTANTS = (
    *(
        Mutant(f"{part}: {each.name}", each.planes, fed(part, **{each.argument: each.change}))
        for part, mutants in FED.items()
        for each in mutants
    ),
    Mutant("counts are corrected in place", "counts", then("prepare_inputs", in_place)),
    Mutant("slots are mapped from optimistic positions", "inputs", then("prepare_inputs", optimistic_slots)),
    Mutant("slots are mapped by the first row's table", "inputs", then("prepare_inputs", table_of_row_0)),
    Mutant("positions have no start", "inputs", then("prepare_inputs", positions_without_start)),
    Mutant("inputs are overlaid in the current order", "inputs drafts", then("prepare_inputs", drafts_in_this_order)),
    Mutant(
        "sequences are one token short",
        "inputs",
        then("prepare_inputs", lambda a: put(a.seq_lens, np.maximum(a.seq_lens - 1, 0))),
    ),
    Mutant("padding tokens have a position", "inputs", then("prepare_inputs", position_of_padding)),
    Mutant("padding has slot 0", "inputs kv", then("prepare_inputs", lambda a: put(a.slots, np.maximum(a.slots, 0)))),
    Mutant(
        "input ids are laid out one token late",
        "inputs",
        then("prepare_inputs", lambda a: put(a.input_ids, np.roll(a.input_ids, 1))),
    ),
    Mutant("the last cache word is not written", "tokens kv", then("kv_write", lambda a: put(a.kv[-1:], 0))),
    Mutant("attention is not added", "recurrent", instead("attention", without_attention)),
    Mutant("logits stay numbers", "counts", never("spoil_logits")),
    Mutant("every single logit stays a number", "counts drafts logits tokens", never("spoil_one_logit")),
    Mutant("every draft stays a token", "drafts", never("spoil_one_draft")),
    Mutant("raw logits come from an earlier step", "logits", never("keep_logits")),
    Mutant("every draft is accepted", "counts", then("rejection_sample", accept_everything)),
    Mutant("nothing is cut off", "tokens", then("logit_floors", lambda a: put(a.floors, -np.inf))),
    Mutant("nothing is left of the target", "tokens books", then("residual_mass", lambda a: put(a.residual, 0))),
    Mutant("the token after the accepted ones is dropped", "tokens counts", then("rejection_sample", no_bonus)),
    Mutant(
        "accepted counts lack the bonus token",
        "counts",
        then("count_sampled", lambda a: put(a.accepted, a.accepted - 1)),
    ),
    Mutant("padding stores its count into slot 0", "recurrent counts", then("count_sampled", padding_stores_its_count)),
    Mutant("the next token is the first sampled one", "inputs", then("count_sampled", column_0)),
    Mutant(
        "drafts follow the token before the last kept one",
        "drafts",
        then("count_sampled", lambda a: put(a.token_index, np.maximum(a.token_index - 1, 0))),
    ),
    Mutant("drafts follow rejected tokens too", "drafts", then("count_sampled", after_rejected)),
    Mutant("the drafter's tokens are not shifted", "drafts", instead("draft_first_pass", without_shift)),
    Mutant("the chain overwrites a kept word", "drafts", then("draft_chain", overwrites_the_last_kept)),
    Mutant("blocks are given out without poison", "kv", never("poison")),
    Mutant("states kept with blocks are given out without poison", "kv", never("poison_states")),
)

# Equivalent mutants, each with the reason why it cannot be found.
EQUIVALENT = (
    Mutant(
        "one common block fewer is summed once: the rest of each row makes up for it",
        "",
        fed("cascade_attention", num_common_blocks=lambda a: a.num_common_blocks - 1),
    ),
    Mutant(
        "the chain caches nothing: its words are scratch, and the next first pass writes over them",
        "",
        fed("draft_chain", drafter_kv=lambda a: a.drafter_kv.copy()),
    ),
    Mutant(
        "drafts past d are judged: they are NO_DRAFT, which no token equals",
        "",
        fed("rejection_sample", num_drafts=lambda a: np.where(a.num_scheduled > 0, a.num_speculative_tokens, 0)),
    ),
    Mutant(
        "padding rows are looked up: recurrent_update leaves them alone",
        "",
        then("prepare_inputs", lambda a: put(a.accepted, a.slot_accepted[np.maximum(a.state_slot, 0)])),
    ),
)
