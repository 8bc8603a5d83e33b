"""Turn the host's sampling parameters of a step into the inputs of the sampler's ops."""

from struct import pack, unpack
from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

RATE_STEPS = 64


@arguments
class SamplingInputs(Arguments):
    """Set the parameters of each row, the position of the token that its first column decides, and floors of -inf."""

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
    """Set the parameters of each row, the position of the token that its first column decides, and floors of -inf."""
    width = 1 + a.num_speculative_tokens
    for row in range(len(a.num_drafts)):
        a.temperature[row] = number_of(int(a.temperature_bits[row]))
        a.top_p[row] = number_of(int(a.top_p_bits[row]))
        a.positions[row] = int(a.num_computed[row]) + int(a.num_scheduled[row]) - int(a.num_drafts[row])
        for column in range(width):
            a.floors[row * width + column] = -np.inf
    for draft in range(a.num_speculative_tokens):
        a.rates[draft] = int(a.rates_in_steps[draft]) / RATE_STEPS


def number_of(bits: int) -> float:
    """Return the float32 number that has these bits."""
    number: float = unpack("f", pack("i", bits))[0]
    return number
