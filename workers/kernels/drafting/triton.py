"""Shared Triton code of drafters: script entries, and KV entries of a row's draft tokens."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import PAD_BLOCK


@triton.jit
def store_scratch(p_cache, p_table, b_word, b_position, is_real, length, block_size):
    """Store the KV entry of each row's draft token, if its position has a block."""
    is_inside = is_real & (b_position < length)
    b_block = tl.load(p_table + b_position // block_size, mask=is_inside, other=PAD_BLOCK)
    tl.store(p_cache + b_block * block_size + b_position % block_size, b_word, mask=b_block >= 0)


@triton.jit
def scripted(p_script, b_slot, b_position, is_real, max_model_len):
    o_script = b_slot * max_model_len + tl.minimum(b_position, max_model_len - 1)
    return tl.load(p_script + o_script, mask=is_real, other=0)
