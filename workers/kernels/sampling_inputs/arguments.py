"""Turn the host's sampling parameters of a step into the inputs of the sampler's ops."""

from typing import Annotated

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
