"""Draw the noise of a step's sampling: uniform numbers that are functions of (seed, position, stream) alone.

Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

# One stream a purpose: noise that chose a draft must not choose what replaces it (vLLM PR #54282).
DRAFT_STREAM, ACCEPT_STREAM, SELECT_STREAM = 0, 1, 2


@arguments
class DrawNoise(Arguments):
    """Draw what verification needs for each row.

    What column c selects has position + c. Whether it is accepted has the position of the first column, and index
    c: verification of drafts together looks at numbers of drafts that it does not keep, and the next one must not
    use them again.
    """

    seeds: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "B", of=("noise_positions",))]
    accept_noise: Annotated[Memory, Out("float32", "B * K")]
    select_noise: Annotated[Memory, Out("float32", "B * (1 + K) * (1 + num_tries) * 4")]
    num_speculative_tokens: int
    num_tries: int
