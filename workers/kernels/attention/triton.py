"""Paged causal attention over the KV cache, with odd integer weights."""

import triton
import triton.language as tl

from workers.kernels.arithmetic.triton import attention as weighted
from workers.kernels.arithmetic.triton import mix
from workers.kernels.attention.definition import Attention
from workers.kernels.launch.triton import PAD_ROW, kernel, launch

BLOCK_TOKENS = 16
BLOCK_POSITIONS = 64


def attention(a: Attention) -> None:
    num_tokens = a.hidden.numel()
    launch(_kernel, (-(-num_tokens // BLOCK_TOKENS),))(
        a.kv, a.block_table, a.token_row, a.positions, a.hidden, a.output,
        num_tokens, a.num_blocks_max * a.block_size,
        a.max_blocks,
        a.block_size, BLOCK_TOKENS, BLOCK_POSITIONS,
    )  # fmt: skip


@kernel()
def _kernel(
    p_kv, p_block_table, p_token_row, p_positions, p_hidden, p_output,
    num_tokens, length,
    max_blocks, block_size,
    BLOCK_TOKENS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr,
):  # fmt: skip
    o_token = tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    is_token = o_token < num_tokens
    b_row = tl.load(p_token_row + o_token, mask=is_token, other=PAD_ROW)
    is_real = b_row >= 0
    b_position = tl.load(p_positions + o_token, mask=is_real, other=0)
    p_table = p_block_table + b_row * max_blocks
    b_sum, b_sum_position = sum_paged(
        p_kv, p_table, b_position, is_real, 0, length, block_size, BLOCK_TOKENS, BLOCK_POSITIONS
    )
    b_output = weighted(b_sum, b_sum_position, b_position)
    b_hidden = tl.load(p_hidden + o_token, mask=is_real, other=0)
    tl.store(p_hidden + o_token, mix(b_hidden + b_output), mask=is_real)
    tl.store(p_output + o_token, b_output, mask=is_token)


@triton.jit
def sum_paged(
    p_kv, p_table, b_last, is_real, first, length, block_size,
    BLOCK_ROWS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr,
):  # fmt: skip
    """Return, per row of a block table, the sums of kv and kv * position in [first, last].

    Positions from `length` on have no blocks.
    """
    b_sum = tl.zeros([BLOCK_ROWS], dtype=tl.uint64)
    b_sum_position = tl.zeros([BLOCK_ROWS], dtype=tl.uint64)
    for start in range(first, length, BLOCK_POSITIONS):
        o_position = start + tl.arange(0, BLOCK_POSITIONS).to(tl.int64)
        is_seen = (o_position < length)[None, :] & (o_position[None, :] <= b_last[:, None]) & is_real[:, None]
        b_block = tl.load(p_table[:, None] + (o_position // block_size)[None, :], mask=is_seen, other=0)
        o_kv = tl.maximum(b_block, 0) * block_size + (o_position % block_size)[None, :]
        b_kv = tl.load(p_kv + o_kv, mask=is_seen, other=0)
        b_sum += tl.sum(b_kv, axis=1)
        b_sum_position += tl.sum(b_kv * o_position.to(tl.uint64)[None, :], axis=1)
    return b_sum, b_sum_position
