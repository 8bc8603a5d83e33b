"""Batches for the ops of drafters, each with the accepted tokens of a step."""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from tests.workers.kernels.cases.batch import Array, Batch, batches, integers
from workers.kernels.argument import Arguments
from workers.kernels.sentinels import NO_TOKEN, PAD_BLOCK, PAD_SLOT

WIDTH = 3

Made = TypeVar("Made", bound=Arguments)


def drafting() -> Iterator[tuple[Batch, int]]:
    """Yield batches, each with the number of draft tokens to propose: K, or K - 1."""
    for index, batch in enumerate(batches()):
        yield batch, max(batch.k - index % 2, 0)


def made(op: type[Made], batch: Batch, num_proposed: int, **more: Any) -> Made:
    """Return the arguments of an op for a batch."""
    given = {**given_of(batch, num_proposed), **more}
    arguments: Made = op(**{name: given[name] for name in op.modes()})
    return arguments


def given_of(batch: Batch, num_proposed: int) -> dict[str, Any]:
    """Return all values that drafters' ops may take as arguments, by name.

    The model's length is one more than the longest row's. Only some rows have a valid token; others have no next token.
    """
    rng, rows, k = batch.rng, batch.num_rows, batch.k
    max_model_len = int((batch.num_computed + batch.num_scheduled).max()) + 1
    valid = np.where(batch.is_real, rng.integers(0, 2 + batch.num_drafts), 0)
    valid[batch.num_real - 1] = 1 + batch.num_drafts[batch.num_real - 1]
    table, last = shortened(batch), last_kept(batch, valid)
    return {
        "hidden": batch.words(batch.num_tokens),
        "input_ids": batch.ids(),
        "positions": batch.positions,
        "slots": batch.slots,
        "token_row": batch.token_row,
        "token_index": last,
        "next_tokens": np.where(valid > 0, rng.integers(0, batch.vocab_size, rows), NO_TOKEN),
        "num_computed": batch.num_computed,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "valid": valid,
        "accepted": np.where(batch.is_real, rng.integers(0, 2 + k, rows), 0),
        "state_slot": batch.state_slot,
        "block_table": table,
        "draft_slots": slots_behind(batch, table, batch.positions[last], max_model_len),
        "script": rng.integers(0, batch.vocab_size, batch.num_state_slots * max_model_len),
        "carried": batch.words(batch.num_state_slots),
        "drafter_hidden": batch.words(batch.num_tokens),
        "drafter_attended": batch.words(batch.num_tokens),
        "drafter_states": batch.words(batch.num_state_slots * (2 + k)),
        "drafter_conv": batch.words(batch.num_state_slots * (WIDTH + k)),
        "drafter_kv": batch.cache(),
        "raw": batch.words(rows * k),
        "own": integers(rows * k),
        "draft_tokens": integers(rows * k),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_blocks_max": batch.num_blocks_max,
        "num_queries_max": int(batch.num_scheduled.max()),
        "max_model_len": max_model_len,
        "num_speculative_tokens": k,
        "num_proposed": num_proposed,
        "vocab_size": batch.vocab_size,
        "conv_width": WIDTH,
    }


def last_kept(batch: Batch, valid: Array) -> Array:
    """Return the index of each row's last accepted token; the first token if none is valid."""
    last: Array = batch.verified_first + np.maximum(valid - 1, 0)
    return last


def slots_behind(batch: Batch, table: Array, last: Array, max_model_len: int) -> Array:
    """Return the slots of the K positions after each row's last accepted token."""
    at = last[:, None] + 1 + np.arange(batch.k)
    entry = np.minimum(at // batch.block_size, batch.max_blocks - 1)
    block = table.reshape(batch.num_rows, -1)[np.arange(batch.num_rows)[:, None], entry]
    is_mapped = (block >= 0) & (at < max_model_len) & batch.is_real[:, None]
    slots: Array = np.where(is_mapped, block * batch.block_size + at % batch.block_size, PAD_SLOT).ravel()
    return slots


def shortened(batch: Batch) -> Array:
    """Return the block table; every other row has no blocks after the tokens of this step."""
    table = batch.block_table.reshape(batch.num_rows, batch.max_blocks).copy()
    own = -(-(batch.num_computed + batch.num_scheduled) // batch.block_size)
    is_behind = np.arange(batch.max_blocks) >= own[:, None]
    is_behind[1::2] = False
    table[is_behind] = PAD_BLOCK
    return table.ravel()
