"""Definition of the inputs of sampling: a loop over rows."""

from struct import pack, unpack

import numpy as np

from workers.kernels.sampling_inputs.arguments import RATE_STEPS, SamplingInputs


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
