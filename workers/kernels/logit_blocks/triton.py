"""Blocks of a row of logits: read them; store and fetch the candidates of a block."""

import triton
import triton.language as tl

from workers.kernels.probabilities.triton import NEVER

# Consecutive logits that one thread reads.
NEIGHBOURS = tl.constexpr(4)


@triton.jit
def block(p_line, i_block, num_blocks, vocab_size, TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr):
    """Return the logits of a block of a row; -inf past the end of the row.

    Each thread reads groups of neighbouring logits. Shape: [threads, reads, neighbours].
    """
    READS: tl.constexpr = TILES * TILE // (THREADS * NEIGHBOURS)
    o_read = (tl.arange(0, READS)[None, :] * THREADS + tl.arange(0, THREADS)[:, None]) * NEIGHBOURS
    o_first = (o_read // TILE * num_blocks + i_block) * TILE + o_read % TILE
    b_token = o_first[:, :, None] + tl.arange(0, NEIGHBOURS)[None, None, :]
    # Nearly every block is complete and needs no mask.
    if ((TILES - 1) * num_blocks + i_block + 1) * TILE <= vocab_size:
        b_logits = tl.load(p_line + b_token)
    else:
        b_logits = tl.load(p_line + b_token, mask=b_token < vocab_size, other=NEVER)
    return b_logits


@triton.jit
def store_candidates(
    b_logits, lowest, p_line, p_candidates, i_block, num_blocks, room,
    TILE: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """Store the logits of a block that are at least `lowest`; return their number.

    Each thread marks its candidates in a bit mask and loads them again: they are few, and in the cache because they
    were just read.
    """
    READS: tl.constexpr = b_logits.shape[1]
    tl.static_assert(READS * NEIGHBOURS <= 32)
    b_bit = tl.arange(0, READS)[None, :, None] * NEIGHBOURS + tl.arange(0, NEIGHBOURS)[None, None, :]
    b_bits = tl.where(b_logits >= lowest, (b_bit * 0 + 1).to(tl.uint32) << b_bit.to(tl.uint32), 0).to(tl.uint32)
    b_bits = tl.sum(tl.sum(b_bits, axis=2), axis=1)
    b_count = _num_bits(b_bits).to(tl.int32)
    b_place = tl.cumsum(b_count, axis=0) - b_count
    count = tl.sum(b_count, axis=0)
    # Nothing is stored if the candidates do not all fit.
    for _ in range(tl.where(count <= room, tl.max(b_count, axis=0), 0)):
        b_lowest = b_bits & (~b_bits + 1)
        b_index = (b_lowest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
        b_one = (b_index // NEIGHBOURS * THREADS + tl.arange(0, THREADS)) * NEIGHBOURS + b_index % NEIGHBOURS
        p_one = p_line + (b_one // TILE * num_blocks + i_block) * TILE + b_one % TILE
        b_logit = tl.load(p_one, mask=b_bits != 0, other=NEVER)
        tl.store(p_candidates + b_place, b_logit, mask=b_bits != 0)
        b_bits ^= b_lowest
        b_place += 1
    return count


@triton.jit
def _num_bits(b_words):
    """Return the number of bits set in each word."""
    b_words -= (b_words >> 1) & 0x55555555
    b_words = (b_words & 0x33333333) + ((b_words >> 2) & 0x33333333)
    return (((b_words + (b_words >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24


@triton.jit
def fetch(p_counts, p_candidates, num_blocks, LENGTH: tl.constexpr, ROOM: tl.constexpr, USED: tl.constexpr):
    """Return the stored candidates of a row's blocks, at most USED per block, padded with -inf."""
    o_place = tl.arange(0, LENGTH)[None, :]
    o_block = o_place // USED
    b_count = tl.load(p_counts + o_block, mask=o_block < num_blocks, other=0.0)
    is_one = o_place % USED < b_count.to(tl.int32)
    return tl.load(p_candidates + o_block * ROOM + o_place % USED, mask=is_one, other=NEVER)
