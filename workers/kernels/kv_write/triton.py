"""Compute the hidden state of each token, and write its KV-cache entry."""

import triton.language as tl

from workers.kernels.arithmetic.triton import embed, kv_entry
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.launch.triton import PAD_SLOT, kernel, launch

BLOCK_TOKENS = 128


def kv_write(a: KvWrite) -> None:
    num_tokens = a.hidden.numel()
    grid = (-(-num_tokens // BLOCK_TOKENS),)
    launch(_kernel, grid)(a.input_ids, a.positions, a.slots, a.hidden, a.kv, num_tokens, a.layer, BLOCK_TOKENS)


@kernel()
def _kernel(p_input_ids, p_positions, p_slots, p_hidden, p_kv, num_tokens, layer: tl.constexpr, BLOCK: tl.constexpr):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    b_hidden = embed(tl.load(p_input_ids + o_token, mask=is_token, other=0))
    b_position = tl.load(p_positions + o_token, mask=is_token, other=0)
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    tl.store(p_hidden + o_token, b_hidden, mask=is_token)
    tl.store(p_kv + o_slot, kv_entry(b_hidden, b_position, layer), mask=o_slot >= 0)
