"""Overwrite memory that gets a new owner, so that any read of stale values is noticed."""

import triton
import triton.language as tl
from torch import Tensor

from workers.kernels.launch.triton import POISON, kernel, launch
from workers.kernels.poison.definition import Poison, PoisonStates

BLOCK_WORDS = 256


def poison(a: Poison) -> None:
    _launch(a.blocks, a.kv, a.block_size, a.drafter_kv, a.block_size, a.num_blocks)


def poison_states(a: PoisonStates) -> None:
    _launch(a.blocks, a.block_states, 1, a.block_windows, a.window_length, a.num_blocks)


def _launch(blocks: Tensor, one: Tensor, one_length: int, other: Tensor, other_length: int, num_blocks: int) -> None:
    """Poison blocks in two buffers; `one_length` and `other_length` are their entries per block."""
    assert blocks.numel() >= num_blocks
    grid = (-(-num_blocks * max(one_length, other_length) // BLOCK_WORDS),)
    launch(_kernel, grid)(blocks, one, other, num_blocks, one_length, other_length, BLOCK_WORDS)


@kernel()
def _kernel(p_blocks, p_one, p_other, num_blocks, one_length, other_length, BLOCK: tl.constexpr):
    o_word = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    _poison(p_blocks, p_one, o_word, num_blocks, one_length, BLOCK)
    _poison(p_blocks, p_other, o_word, num_blocks, other_length, BLOCK)


@triton.jit
def _poison(p_blocks, p_words, o_word, num_blocks, length, BLOCK: tl.constexpr):
    is_word = o_word < num_blocks * length
    b_block = tl.load(p_blocks + o_word // length, mask=is_word, other=0)
    b_poison = tl.full([BLOCK], POISON, dtype=tl.uint64)
    tl.store(p_words + b_block * length + o_word % length, b_poison, mask=is_word)
