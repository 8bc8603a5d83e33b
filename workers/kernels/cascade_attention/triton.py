"""Cascade attention: sum the KV-cache blocks of a shared prefix only once."""

import triton.language as tl

from workers.kernels.arithmetic.triton import attention as weighted
from workers.kernels.arithmetic.triton import mix
from workers.kernels.attention.triton import sum_paged
from workers.kernels.cascade_attention.definition import CascadeAttention
from workers.kernels.launch.triton import PAD_ROW, kernel, launch

BLOCK_TOKENS = 16
BLOCK_POSITIONS = 64


def cascade_attention(a: CascadeAttention) -> None:
    """Launch programs that each sum the common KV-cache blocks once, for all their tokens."""
    num_tokens = a.hidden.numel()
    launch(_kernel, (-(-num_tokens // BLOCK_TOKENS),))(
        a.kv, a.block_table, a.token_row, a.positions, a.hidden, a.output,
        num_tokens, a.num_common_blocks * a.block_size, a.num_blocks_max * a.block_size,
        a.max_blocks,
        a.block_size, BLOCK_TOKENS, BLOCK_POSITIONS,
    )  # fmt: skip


@kernel()
def _kernel(
    p_kv, p_block_table, p_token_row, p_positions, p_hidden, p_output,
    num_tokens, num_common, length,
    max_blocks, block_size,
    BLOCK_TOKENS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr,
):  # fmt: skip
    o_token = tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    is_token = o_token < num_tokens
    b_row = tl.load(p_token_row + o_token, mask=is_token, other=PAD_ROW)
    is_real = b_row >= 0
    b_position = tl.load(p_positions + o_token, mask=is_real, other=0)
    b_common = tl.zeros([BLOCK_POSITIONS], dtype=tl.uint64)
    b_common_position = tl.zeros([BLOCK_POSITIONS], dtype=tl.uint64)
    for start in range(0, num_common, BLOCK_POSITIONS):
        o_position = start + tl.arange(0, BLOCK_POSITIONS).to(tl.int64)
        is_common = o_position < num_common
        b_block = tl.load(p_block_table + o_position // block_size, mask=is_common, other=0)
        o_kv = tl.maximum(b_block, 0) * block_size + o_position % block_size
        b_kv = tl.load(p_kv + o_kv, mask=is_common, other=0)
        b_common += b_kv
        b_common_position += b_kv * o_position.to(tl.uint64)
    p_table = p_block_table + b_row * max_blocks
    b_sum, b_sum_position = sum_paged(
        p_kv, p_table, b_position, is_real, num_common, length, block_size, BLOCK_TOKENS, BLOCK_POSITIONS
    )
    b_sum += tl.sum(b_common, axis=0)
    b_sum_position += tl.sum(b_common_position, axis=0)
    b_output = tl.where(is_real, weighted(b_sum, b_sum_position, b_position), 0)
    b_hidden = tl.load(p_hidden + o_token, mask=is_real, other=0)
    tl.store(p_hidden + o_token, mix(b_hidden + b_output), mask=is_real)
    tl.store(p_output + o_token, b_output, mask=is_token)
