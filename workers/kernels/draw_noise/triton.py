"""Generate a step's sampling noise as a function of (seed, position, stream)."""

import triton
import triton.language as tl

from workers.kernels.draw_noise import definition as shared
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.launch.triton import can_overlap, kernel, launch, let_next_begin, wait_for_others

ACCEPT_STREAM = tl.constexpr(shared.ACCEPT_STREAM)
SELECT_STREAM = tl.constexpr(shared.SELECT_STREAM)
BLOCK = 128


def draw_noise(a: DrawNoise) -> None:
    """Launch one kernel that generates the random numbers of all rows.

    Launch it after `sampler_stats`, which takes longer: the two overlap.
    """
    num_rows, k = a.positions.numel(), a.num_speculative_tokens
    assert a.accept_noise.numel() == num_rows * k
    assert a.select_noise.numel() == num_rows * (1 + k) * (1 + a.num_tries) * 4
    count = num_rows * (k + (1 + k) * (1 + a.num_tries))
    assert a.select_noise.numel() < 1 << 31, "noise is counted in 32 bits"
    overlaps = can_overlap()
    launch(_kernel, (triton.cdiv(count, BLOCK),))(
        a.seeds, a.positions, a.accept_noise, a.select_noise, num_rows, k, a.num_tries, BLOCK, overlaps,
        launch_pdl=overlaps,
    )  # fmt: skip


@kernel()
def _kernel(
    p_seeds, p_positions, p_accept, p_select, num_rows, k, num_tries,
    BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    # This kernel overlaps with the preceding pass over the logits, which neither reads nor writes noise. It lets no
    # later kernel begin before it has waited for that pass itself.
    let_next_begin(OVERLAPS)
    o_draw = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    num_select = (1 + k) * (1 + num_tries)
    o_row, o_draw = o_draw // (k + num_select), o_draw % (k + num_select)
    is_row = o_row < num_rows
    is_accept = o_draw < k
    o_select = o_draw - k
    b_column = tl.where(is_accept, 0, o_select // (1 + num_tries))
    b_index = tl.where(is_accept, o_draw, o_select % (1 + num_tries))
    b_stream = tl.where(is_accept, ACCEPT_STREAM, SELECT_STREAM)
    b_seed = tl.load(p_seeds + o_row, mask=is_row, other=0).to(tl.uint64)
    b_position = (tl.load(p_positions + o_row, mask=is_row, other=0) + b_column).to(tl.uint64)
    b_low, b_high = b_position.to(tl.uint32), (b_position >> 32).to(tl.uint32)
    b_0, b_1, b_2, b_3 = tl.philox(b_seed, b_low, b_high, b_stream.to(tl.uint32), b_index.to(tl.uint32))
    tl.store(p_accept + o_row * k + o_draw, uniform(b_0), mask=is_row & is_accept)
    is_select = is_row & (is_accept == 0)
    p_words = p_select + (o_row * num_select + o_select) * 4
    tl.store(p_words, uniform(b_0), mask=is_select)
    tl.store(p_words + 1, uniform(b_1), mask=is_select)
    tl.store(p_words + 2, uniform(b_2), mask=is_select)
    tl.store(p_words + 3, uniform(b_3), mask=is_select)
    # So a kernel that waits for this one also waits for the pass over the logits.
    wait_for_others(OVERLAPS)


@triton.jit
def uniform(b_words):
    return (b_words >> 8).to(tl.float32) * (1.0 / (1 << 24))
