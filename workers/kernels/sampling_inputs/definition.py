"""Convert a step's sampling parameters from the host to inputs of the sampler's ops."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

RATE_STEPS = 64


@arguments
class SamplingInputs(Arguments):
    """Set each row's sampling parameters and first sampled position, and all floors to -inf."""

    temperature_bits: Annotated[Memory, In("int64", "B")]
    top_p_bits: Annotated[Memory, In("int64", "B")]
    rates_in_steps: Annotated[Memory, In("int64", "K")]
    num_computed: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    temperature: Annotated[Memory, Out("float32", "B")]
    top_p: Annotated[Memory, Out("float32", "B")]
    rates: Annotated[Memory, Out("float32", "K")]
    positions: Annotated[Memory, Out("int64", "B", of=("noise_positions",))]
    floors: Annotated[Memory, Out("float32", "B * (1 + K)")]
    num_speculative_tokens: int


def sampling_inputs(a: SamplingInputs) -> None:
    """Set each row's sampling parameters and first sampled position, and all floors to -inf."""
    a.temperature[:] = a.temperature_bits.astype(np.int32).view(np.float32)
    a.top_p[:] = a.top_p_bits.astype(np.int32).view(np.float32)
    a.rates[:] = a.rates_in_steps.astype(np.float32) / np.float32(RATE_STEPS)
    a.positions[:] = a.num_computed + a.num_scheduled - a.num_drafts
    a.floors[:] = -np.inf
