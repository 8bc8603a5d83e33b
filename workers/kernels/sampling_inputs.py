"""Turn what the host says about a step's sampling into what the sampler's ops take."""

import numpy as np

from workers.kernels.signature import In, Out

RATE_STEPS = 64


def sampling_inputs(
    temperature_bits: In,
    top_p_bits: In,
    rates_in_steps: In,
    num_computed: In,
    num_scheduled: In,
    num_drafts: In,
    temperature: Out,
    top_p: Out,
    rates: Out,
    positions: Out,
    floors: Out,
    num_speculative_tokens: int,
) -> None:
    """Set the parameters of each row, the position of the token that its first column decides, and no floor at all.

    Shapes: temperature_bits, top_p_bits [B], the bits of float32 numbers; rates_in_steps [K], in 1/64; num_computed,
    num_scheduled, num_drafts [B], as the device corrected them; temperature, top_p [B] and rates [K] float32;
    positions [B]; floors [B * (1 + K)] float32.
    """
    temperature[:] = temperature_bits.astype(np.int32).view(np.float32)
    top_p[:] = top_p_bits.astype(np.int32).view(np.float32)
    rates[:] = rates_in_steps.astype(np.float32) / np.float32(RATE_STEPS)
    positions[:] = num_computed + num_scheduled - num_drafts
    floors.reshape(-1, 1 + num_speculative_tokens)[:] = -np.inf
