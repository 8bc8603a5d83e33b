"""Sample draft tokens from a draft model's distribution.

The logits are kept for the rejection sampler.
"""

import triton
import triton.language as tl

from workers.kernels.arithmetic.triton import logit, mix
from workers.kernels.attention.triton import sum_paged
from workers.kernels.draft_model.triton import run_layers, state_of, store_draft, store_none
from workers.kernels.draft_sampling import definition as shared
from workers.kernels.draft_sampling.definition import DraftNoise, DrawnChain
from workers.kernels.drafting.triton import scripted, store_scratch
from workers.kernels.draw_noise.definition import DRAFT_STREAM as _DRAFT_STREAM
from workers.kernels.draw_noise.triton import uniform
from workers.kernels.launch.triton import kernel, launch
from workers.kernels.probabilities.blocks import block_size_of
from workers.kernels.probabilities.triton import NEVER, pick, scale_of, weight
from workers.kernels.recurrent_update.triton import block_width_of

DRAFT_STREAM = tl.constexpr(_DRAFT_STREAM)
NUMBERS_PER_DRAFT = tl.constexpr(shared.NUMBERS_PER_DRAFT)
BLOCK_DRAFTS = 128
BLOCK_POSITIONS = 64
# Minimum sizes of a kernel's blocks, so that small vocabularies share one compiled kernel.
BLOCKS_MIN, TILES_MIN, TILE_MIN = 32, 4, 128


def draft_noise(a: DraftNoise) -> None:
    """Launch one kernel that generates the random numbers of all rows' draft tokens."""
    num_drafts = a.token_index.numel() * a.num_speculative_tokens
    assert a.draft_noise.numel() == num_drafts * shared.NUMBERS_PER_DRAFT
    launch(_noise_kernel, (max(1, triton.cdiv(num_drafts, BLOCK_DRAFTS)),))(
        a.seeds, a.positions, a.token_index, a.draft_noise, num_drafts, max(1, a.num_speculative_tokens), BLOCK_DRAFTS
    )


@kernel()
def _noise_kernel(p_seeds, p_positions, p_token_index, p_noise, num_drafts, k, BLOCK: tl.constexpr):
    o_draft = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_draft = o_draft < num_drafts
    o_row, b_index = o_draft // k, o_draft % k
    o_last = tl.load(p_token_index + o_row, mask=is_draft, other=0)
    b_seed = tl.load(p_seeds + o_row, mask=is_draft, other=0).to(tl.uint64)
    b_first = (tl.load(p_positions + o_last, mask=is_draft, other=0) + 2).to(tl.uint64)
    b_low, b_high = b_first.to(tl.uint32), (b_first >> 32).to(tl.uint32)
    b_stream = (o_draft * 0 + DRAFT_STREAM).to(tl.uint32)
    b_0, b_1, b_2, _b_3 = tl.philox(b_seed, b_low, b_high, b_stream, b_index.to(tl.uint32))
    p_numbers = p_noise + o_draft * NUMBERS_PER_DRAFT
    tl.store(p_numbers, uniform(b_0), mask=is_draft)
    tl.store(p_numbers + 1, uniform(b_1), mask=is_draft)
    tl.store(p_numbers + 2, uniform(b_2), mask=is_draft)


def drawn_chain(a: DrawnChain) -> None:
    """Launch one program per row; each reads the vocabulary twice per draft token."""
    num_rows, k = a.token_index.numel(), a.num_speculative_tokens
    assert a.draft_noise.numel() == num_rows * k * shared.NUMBERS_PER_DRAFT
    vocabulary_block = block_size_of(a.vocab_size, a.tile_size, a.vocab_block_min)
    num_vocabulary_blocks, num_tiles = triton.cdiv(a.vocab_size, vocabulary_block), vocabulary_block // a.tile_size
    launch(_chain_kernel, (num_rows,))(
        a.next_tokens, a.positions, a.token_index, a.num_scheduled, a.valid, a.accepted, a.state_slot, a.block_table,
        a.script, a.temperature_bits, a.point_mass, a.draft_noise, a.drafter_states, a.drafter_conv, a.drafter_kv,
        a.draft_logits, a.raw, a.own, a.draft_tokens,
        num_rows, a.num_blocks_max * a.block_size, a.max_model_len, a.num_proposed, a.vocab_size, num_vocabulary_blocks,
        a.max_blocks, 2 + k, a.conv_width + k,
        a.block_size, k, a.conv_width, num_tiles, a.tile_size, block_width_of(a.conv_width), BLOCK_POSITIONS,
        max(triton.next_power_of_2(num_vocabulary_blocks), BLOCKS_MIN),
        max(num_tiles, TILES_MIN), max(a.tile_size, TILE_MIN),
    )  # fmt: skip


@kernel()
def _chain_kernel(
    p_next_tokens, p_positions, p_token_index, p_num_scheduled, p_valid, p_accepted, p_state_slot, p_block_table,
    p_script, p_temperature_bits, p_point_mass, p_noise, p_states, p_conv, p_kv, p_draft_logits,
    p_raw, p_own, p_draft_tokens,
    num_rows, length, max_model_len, num_proposed, vocab_size, num_vocabulary_blocks,
    max_blocks, stride_states, stride_conv, block_size, k, width, num_tiles, tile_size,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_POSITIONS: tl.constexpr, BLOCKS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    # The shared layer functions take blocks of rows; here the block is one row.
    o_row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    is_row = o_row < num_rows
    is_real = is_row & (tl.load(p_num_scheduled + o_row, mask=is_row, other=0) > 0)
    is_valid = is_real & (tl.load(p_valid + o_row, mask=is_row, other=0) > 0)
    b_bits = tl.load(p_temperature_bits + o_row, mask=is_row, other=0)
    b_temperature = b_bits.to(tl.int32).to(tl.float32, bitcast=True)
    is_drawn = is_valid & (b_temperature > 0) & (tl.load(p_point_mass + o_row, mask=is_row, other=1) == 0)
    o_last = tl.load(p_token_index + o_row, mask=is_real, other=0)
    b_last = tl.load(p_positions + o_last, mask=is_real, other=0)
    b_slot = tl.load(p_state_slot + o_row, mask=is_real, other=0)
    p_table = p_block_table + o_row * max_blocks
    b_sum, b_sum_position = sum_paged(p_kv, p_table, b_last, is_real, 0, length, block_size, 1, BLOCK_POSITIONS)
    b_state, b_window = state_of(
        p_states, p_conv, p_accepted, o_row, b_slot, is_real, stride_states, stride_conv, k, width, BLOCK_WIDTH, 1
    )
    b_token = tl.load(p_next_tokens + o_row, mask=is_real, other=0)
    for index in range(num_proposed):
        b_position = b_last + 1 + index
        b_hidden, b_word, b_sum, b_sum_position, b_state, b_window = run_layers(
            b_token, b_position, index, b_sum, b_sum_position, b_state, b_window, width, BLOCK_WIDTH
        )
        store_scratch(p_kv, p_table, b_word, b_position, is_real, max_model_len, block_size)
        b_wrong = scripted(p_script, b_slot, b_position + 1, is_real, max_model_len)
        b_of = tl.where(is_drawn & (b_wrong > 0), mix(b_hidden + 1), b_hidden)
        p_line = p_draft_logits + (b_slot * k + index) * vocab_size
        b_largest, b_own = _largest(b_of, p_line, is_drawn, vocab_size, TILES * TILE)
        p_numbers = p_noise + (o_row * k + index) * NUMBERS_PER_DRAFT
        b_drawn = _sampled_token(
            b_of,
            p_numbers,
            is_drawn,
            b_largest,
            scale_of(b_temperature),
            vocab_size,
            num_vocabulary_blocks,
            num_tiles,
            tile_size,
            BLOCKS,
            TILES,
            TILE,
        )
        b_token = tl.where(is_drawn, b_drawn, (b_own + b_wrong) % vocab_size)
        o_draft = o_row * k + index
        store_draft(p_raw, p_own, p_draft_tokens, o_draft, b_hidden, b_own, b_token, is_row, is_real, is_valid)
    for index in range(num_proposed, k):
        store_none(p_raw, p_own, p_draft_tokens, o_row * k + index, is_row)


@triton.jit
def _largest(b_word, p_line, is_kept, vocab_size, BLOCK: tl.constexpr):
    """Return a hidden state's largest logit, and the lowest token id that has it.

    Store the logits where `is_kept`.

    Shapes: [1], and [1] pointers.
    """
    b_largest = tl.full([1], NEVER, dtype=tl.float32)
    b_own = tl.zeros([1], dtype=tl.int64)
    for first in range(0, vocab_size, BLOCK):
        o_token = first + tl.arange(0, BLOCK).to(tl.int64)
        is_token = (o_token < vocab_size)[None, :]
        b_logits = tl.where(is_token, logit(b_word[:, None], o_token[None, :]), NEVER)
        tl.store(p_line[:, None] + o_token[None, :], b_logits, mask=is_token & is_kept[:, None])
        b_maximum = tl.max(b_logits, axis=1)
        b_first = tl.min(tl.where(b_logits == b_maximum[:, None], o_token[None, :], vocab_size), axis=1)
        b_own = tl.where(b_maximum > b_largest, b_first, b_own)
        b_largest = tl.maximum(b_largest, b_maximum)
    return b_largest, b_own


@triton.jit
def _sampled_token(
    b_word, p_numbers, is_drawn, b_largest, b_scale, vocab_size, num_blocks, num_tiles, tile_size,
    BLOCKS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sample a token by three random numbers: its vocabulary block, its tile, the token.

    Shapes: [1], and [1] pointers.
    """
    o_block, o_tile = tl.arange(0, BLOCKS), tl.arange(0, TILES)
    b_masses = tl.zeros([1, BLOCKS], dtype=tl.float32)
    for i_block in range(num_blocks):
        b_tiles = _tiles(b_word, i_block, b_largest, b_scale, vocab_size, num_tiles, tile_size, TILES, TILE)
        mass = tl.sum(tl.sum(b_tiles, axis=1), axis=0)
        b_masses = tl.where((o_block == i_block)[None, :], mass, b_masses)
    b_block = pick(b_masses, tl.load(p_numbers, mask=is_drawn, other=0.0))
    i_drawn = tl.sum(b_block, axis=0)
    b_tiles = _tiles(b_word, i_drawn, b_largest, b_scale, vocab_size, num_tiles, tile_size, TILES, TILE)
    b_tile = pick(tl.sum(b_tiles, axis=1)[None, :], tl.load(p_numbers + 1, mask=is_drawn, other=0.0))
    b_of_tile = tl.sum(tl.where((o_tile == tl.sum(b_tile, axis=0))[:, None], b_tiles, 0.0), axis=0)
    b_place = pick(b_of_tile[None, :], tl.load(p_numbers + 2, mask=is_drawn, other=0.0))
    return (b_block.to(tl.int64) * num_tiles + b_tile) * tile_size + b_place


@triton.jit
def _tiles(
    b_word, i_block, b_largest, b_scale, vocab_size, num_tiles, tile_size, TILES: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Return the weights of the tokens in a vocabulary block, by tile."""
    o_tile, o_place = tl.arange(0, TILES).to(tl.int64), tl.arange(0, TILE)
    b_token = (i_block * num_tiles + o_tile)[:, None] * tile_size + o_place[None, :]
    is_token = (o_tile < num_tiles)[:, None] & (o_place < tile_size)[None, :] & (b_token < vocab_size)
    b_logits = tl.where(is_token, logit(b_word[:, None], b_token), NEVER)
    return weight(b_logits, NEVER, b_largest[:, None], b_scale[:, None])
