"""Shared NumPy code of drafters: attention and cache of a chain, scripted drafts, and the drafts to propose."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.numpy import (
    TWO,
    Integers,
    Words,
    arange,
    attention,
    cached_words,
    column,
    columns,
    integer,
    multiples,
    repeated,
    runs,
    shared,
    slots_at,
    store,
    tiled,
    words,
)
from workers.kernels.drafting.shared_arguments import CachedDrafts, ScriptedDrafts
from workers.kernels.sentinels import NO_DRAFT

_NO_DRAFT = integer(NO_DRAFT)


def cached_sums(a: CachedDrafts, last: Integers) -> tuple[Words, Words]:
    """Return each row's attention at position `last` over its cached words, and the sum of the words up to there."""
    length = a.num_blocks_max * a.block_size
    cached = cached_words(a.drafter_kv, a.block_table, a.block_size, a.max_blocks, a.num_blocks_max)
    row = multiples(len(last), length)
    if np.count_nonzero(last < integer(length)) == len(last):
        return attention(cached, row + last)
    at = np.minimum(last, integer(length - 1))
    seen, sums = attention(cached, row + at)
    # For each position that a row has not cached every weight is larger by 2.
    seen += words(last - at) * sums * TWO
    return seen, sums


def see(seen: Words, sums: Words, stored: Words) -> None:
    """Advance rows' attention, and the sums of their cached words, by one position, where `stored` is cached."""
    # Every weight is larger by 2, and that of the position itself is 1.
    seen += sums
    sums += stored
    seen += sums


def write_raw(a: ScriptedDrafts, raws: Words, num_real: Any) -> None:
    """Write raws [num_proposed, num_rows] of real rows, which come first; the rest is 0."""
    a.raw.fill(0)
    a.raw[columns(len(a.valid), a.num_speculative_tokens, num_real, len(raws))] = raws[:, :num_real].ravel()


def write_scratch(a: CachedDrafts, stored: Words, last: Integers, num_real: Any) -> None:
    """Write words [count, num_rows] at the positions behind `last`, where real rows, which come first, own the block.

    Positions from `max_model_len` on have no place. The words lie behind the last kept token, and are
    overwritten.
    """
    count = len(stored)
    row = tiled(num_real, count)
    at = last[row]
    at += repeated(1 + count, num_real)[num_real:]
    first = multiples(num_real, a.max_blocks)[row]
    slots = slots_at(at, first, a.block_table, a.block_size, a.max_blocks, a.max_model_len)
    store(a.drafter_kv, slots, stored[:, :num_real].ravel())


def scripted(a: ScriptedDrafts, last: Integers, out: Integers | None = None) -> Integers:
    """Return the scripted drafts behind each row's next token, [num_rows, K], in `out` if it is given.

    The next token is the one behind position `last`.
    """
    k = a.num_speculative_tokens
    at = _script_places(a.max_model_len, k).take(last, axis=0, mode="clip")
    line = a.state_slot * integer(a.max_model_len)
    at += line[repeated(len(line), k)].reshape(at.shape)
    # Clipped: padding has no slot.
    found: NDArray[np.int64] = a.script.take(at, out=out, mode="clip")
    return found


@cache
def _script_places(max_model_len: int, k: int) -> Integers:
    """Return for each position, and past the last, the script's places of the K drafts behind the token after it."""
    return shared(np.minimum(runs(max_model_len, k) + 2, max_model_len - 1))


def propose(draft_tokens: Any, proposed: Any, valid: Any) -> None:
    """Write proposed [num_rows, count] into draft_tokens [num_rows, K]; NO_DRAFT behind, and without a valid token."""
    count = proposed.shape[1]
    draft_tokens[:, :count] = proposed
    withhold(draft_tokens, count, valid)


def withhold(draft_tokens: Any, count: int, valid: Any) -> None:
    """Write NO_DRAFT into draft_tokens [num_rows, K] from column `count` on, and in rows without a valid token."""
    # Clipped: any number of valid tokens is as good as one.
    draft_tokens[_withheld(draft_tokens.shape[1], count).take(valid, axis=0, mode="clip")] = _NO_DRAFT


@cache
def _withheld(k: int, count: int) -> NDArray[np.bool_]:
    """Return which of K columns are withheld from a row without a valid token, and from one with a valid token."""
    return shared(arange(k) >= column(2) * count)
