"""Make memory that changes hands unreadable."""

import triton
import triton.language as tl

from workers.kernels.triton.launch import launch
from workers.kernels.triton.signature import POISON, In, InOut, check_flat

BLOCK_WORDS = 256


def poison(blocks: In, kv: InOut, drafter_kv: InOut, num_blocks: int, block_size: int) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches.

    Shapes: blocks [at least num_blocks]; kv, drafter_kv [blocks of the pool * block_size] uint64.
    """
    check_flat(blocks, kv, drafter_kv)
    assert blocks.numel() >= num_blocks
    num_words = num_blocks * block_size
    launch(_kernel, (-(-num_words // BLOCK_WORDS),))(blocks, kv, drafter_kv, num_words, block_size, BLOCK_WORDS)


@triton.jit(do_not_specialize=["num_words"])
def _kernel(p_blocks, p_kv, p_drafter_kv, num_words, BLOCK_SIZE: tl.constexpr, BLOCK_WORDS: tl.constexpr):
    o_word = tl.program_id(0).to(tl.int64) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)
    is_word = o_word < num_words
    o_slot = tl.load(p_blocks + o_word // BLOCK_SIZE, mask=is_word, other=0) * BLOCK_SIZE + o_word % BLOCK_SIZE
    b_poison = tl.full([BLOCK_WORDS], POISON, dtype=tl.uint64)
    tl.store(p_kv + o_slot, b_poison, mask=is_word)
    tl.store(p_drafter_kv + o_slot, b_poison, mask=is_word)
