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
    _launch(blocks, kv, block_size, drafter_kv, block_size, num_blocks)


def poison_states(blocks: In, block_states: InOut, block_windows: InOut, num_blocks: int, window_length: int) -> None:
    """Overwrite the recurrent states that are kept with the first `num_blocks` of `blocks`.

    Shapes: blocks [at least num_blocks]; block_states [blocks of the pool], block_windows [blocks of the pool *
    window_length] uint64.
    """
    _launch(blocks, block_states, 1, block_windows, window_length, num_blocks)


def _launch(blocks: In, one: InOut, one_length: int, other: InOut, other_length: int, num_blocks: int) -> None:
    """Poison two buffers that have one_length and other_length words a block."""
    check_flat(blocks, one, other)
    assert blocks.numel() >= num_blocks
    grid = (-(-num_blocks * max(one_length, other_length) // BLOCK_WORDS),)
    launch(_kernel, grid)(blocks, one, other, num_blocks, one_length, other_length, BLOCK_WORDS)


@triton.jit(do_not_specialize=["num_blocks"])
def _kernel(
    p_blocks, p_one, p_other, num_blocks, ONE_LENGTH: tl.constexpr, OTHER_LENGTH: tl.constexpr, BLOCK: tl.constexpr
):
    o_word = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    _poison(p_blocks, p_one, o_word, num_blocks, ONE_LENGTH, BLOCK)
    _poison(p_blocks, p_other, o_word, num_blocks, OTHER_LENGTH, BLOCK)


@triton.jit
def _poison(p_blocks, p_words, o_word, num_blocks, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    is_word = o_word < num_blocks * LENGTH
    b_block = tl.load(p_blocks + o_word // LENGTH, mask=is_word, other=0)
    b_poison = tl.full([BLOCK], POISON, dtype=tl.uint64)
    tl.store(p_words + b_block * LENGTH + o_word % LENGTH, b_poison, mask=is_word)
