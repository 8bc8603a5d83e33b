"""Shared NumPy code of drafters: KV-cache attention, scripted draft tokens, proposals."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.numpy import (
    TWO,
    Integers,
    Words,
    arange,
    as_uint64,
    attention,
    cached_entries,
    column,
    columns,
    int64_scalar,
    multiples,
    repeated,
    runs,
    shared,
    slots_at,
    store,
    tiled,
)
from workers.kernels.drafting.shared_arguments import CachedDrafts, ScriptedDrafts
from workers.kernels.sentinels import NO_DRAFT

_NO_DRAFT = int64_scalar(NO_DRAFT)


def cached_sums(a: CachedDrafts, last: Integers) -> tuple[Words, Words]:
    """Return each row's attention output at position `last`, and the sum of its KV entries."""
    length = a.num_blocks_max * a.block_size
    cached = cached_entries(a.drafter_kv, a.block_table, a.block_size, a.max_blocks, a.num_blocks_max)
    row = multiples(len(last), length)
    if np.count_nonzero(last < int64_scalar(length)) == len(last):
        return attention(cached, row + last)
    at = np.minimum(last, int64_scalar(length - 1))
    seen, sums = attention(cached, row + at)
    # Each position past the cached ones makes every weight 2 larger.
    seen += as_uint64(last - at) * sums * TWO
    return seen, sums


def extend_sums(seen: Words, sums: Words, stored: Words) -> None:
    """Extend each row's attention output and KV sum by one more KV entry, `stored`."""
    # Every weight is 2 larger, and the position's own weight is 1.
    seen += sums
    sums += stored
    seen += sums


def write_raw(a: ScriptedDrafts, raws: Words, num_real: Any) -> None:
    """Write the drafter's hidden states `raws` [num_proposed, num_rows] of non-padding rows.

    Real rows come first. All other elements are 0.
    """
    a.raw.fill(0)
    a.raw[columns(len(a.valid), a.num_speculative_tokens, num_real, len(raws))] = raws[:, :num_real].ravel()


def write_scratch(a: CachedDrafts, stored: Words, last: Integers, num_real: Any) -> None:
    """Write the KV entries [count, num_rows] of draft tokens after position `last` with slots.

    Real rows come first. Positions from `max_model_len` on have no slot. The words are after the last kept token and
    will be overwritten.
    """
    count = len(stored)
    row = tiled(num_real, count)
    at = last[row]
    at += repeated(1 + count, num_real)[num_real:]
    first = multiples(num_real, a.max_blocks)[row]
    slots = slots_at(at, first, a.block_table, a.block_size, a.max_blocks, a.max_model_len)
    store(a.drafter_kv, slots, stored[:, :num_real].ravel())


def scripted_drafts(a: ScriptedDrafts, last: Integers, out: Integers | None = None) -> Integers:
    """Return the K scripted draft tokens after each row's next token: [num_rows, K].

    The result is written to `out` if given.

    The next token is at position `last` + 1.
    """
    k = a.num_speculative_tokens
    at = _script_places(a.max_model_len, k).take(last, axis=0, mode="clip")
    line = a.state_slot * int64_scalar(a.max_model_len)
    at += line[repeated(len(line), k)].reshape(at.shape)
    # Indexes are clipped because padding rows have no state slot.
    found: NDArray[np.int64] = a.script.take(at, out=out, mode="clip")
    return found


@cache
def _script_places(max_model_len: int, k: int) -> Integers:
    """Return, by position of the last kept token, the script indexes of the K draft tokens.

    The draft tokens follow the next token.
    """
    return shared(np.minimum(runs(max_model_len, k) + 2, max_model_len - 1))


def propose(draft_tokens: Any, proposed: Any, valid: Any) -> None:
    """Copy proposed draft tokens [num_rows, count] to draft_tokens [num_rows, K].

    The other columns, and rows without a valid token, get NO_DRAFT.
    """
    count = proposed.shape[1]
    draft_tokens[:, :count] = proposed
    withhold(draft_tokens, count, valid)


def withhold(draft_tokens: Any, count: int, valid: Any) -> None:
    """Write NO_DRAFT in the columns from `count` on, and in rows that sampled no valid token.

    Shape: draft_tokens [num_rows, K].
    """
    # Clipped: only whether the number of valid tokens is zero matters.
    draft_tokens[_withheld(draft_tokens.shape[1], count).take(valid, axis=0, mode="clip")] = _NO_DRAFT


@cache
def _withheld(k: int, count: int) -> NDArray[np.bool_]:
    """Return which of K columns get no draft token: [without a valid token, with one]."""
    return shared(arange(k) >= column(2) * count)
