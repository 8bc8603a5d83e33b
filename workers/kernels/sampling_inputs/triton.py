"""Convert a step's sampling parameters from the host to inputs of the sampler's ops."""

import triton.language as tl

from workers.kernels.launch.triton import kernel, launch, padded_columns
from workers.kernels.sampling_inputs import definition as shared
from workers.kernels.sampling_inputs.definition import SamplingInputs

RATE_STEPS = tl.constexpr(float(shared.RATE_STEPS))


def sampling_inputs(a: SamplingInputs) -> None:
    """Launch one program per row; the first also sets the rates."""
    given = (a.temperature_bits, a.top_p_bits, a.rates_in_steps, a.num_computed, a.num_scheduled, a.num_drafts)
    found = (a.temperature, a.top_p, a.rates, a.positions, a.floors)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    assert a.rates.numel() == a.rates_in_steps.numel() == a.num_speculative_tokens
    assert a.floors.numel() == num_rows * width
    launch(_kernel, (num_rows,))(*given, *found, width, padded_columns(width))


@kernel()
def _kernel(
    p_temperature_bits, p_top_p_bits, p_rates_in_steps, p_num_computed, p_num_scheduled, p_num_drafts,
    p_temperature, p_top_p, p_rates, p_positions, p_floors, width,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.arange(0, COLUMNS)
    temperature_bits, top_p_bits = tl.load(p_temperature_bits + i_row), tl.load(p_top_p_bits + i_row)
    tl.store(p_temperature + i_row, temperature_bits.to(tl.int32).to(tl.float32, bitcast=True))
    tl.store(p_top_p + i_row, top_p_bits.to(tl.int32).to(tl.float32, bitcast=True))
    is_rate = o_column < tl.where(i_row == 0, width - 1, 0)
    b_steps = tl.load(p_rates_in_steps + o_column, mask=is_rate, other=0)
    tl.store(p_rates + o_column, b_steps.to(tl.float32) / RATE_STEPS, mask=is_rate)
    position = tl.load(p_num_computed + i_row) + tl.load(p_num_scheduled + i_row) - tl.load(p_num_drafts + i_row)
    tl.store(p_positions + i_row, position)
    b_none = tl.full([COLUMNS], float("-inf"), dtype=tl.float32)
    tl.store(p_floors + i_row * width + o_column, b_none, mask=o_column < width)
