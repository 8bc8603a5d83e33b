"""Turn the host's fields of a step's sampling into the inputs of the sampler's ops."""

import numpy as np

from workers.kernels.sampling_inputs.definition import RATE_STEPS, SamplingInputs


def sampling_inputs(a: SamplingInputs) -> None:
    a.temperature[:] = a.temperature_bits.astype(np.int32).view(np.float32)
    a.top_p[:] = a.top_p_bits.astype(np.int32).view(np.float32)
    a.rates[:] = a.rates_in_steps.astype(np.float32) / np.float32(RATE_STEPS)
    a.positions[:] = a.num_computed + a.num_scheduled - a.num_drafts
    a.floors.reshape(-1, 1 + a.num_speculative_tokens)[:] = -np.inf
