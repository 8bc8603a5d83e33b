"""Draw the noise of a step's sampling: uniform numbers that are functions of (seed, position, stream) alone.

Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

# One stream a purpose: noise that chose a draft must not choose what replaces it (vLLM PR #54282).
DRAFT_STREAM, ACCEPT_STREAM, SELECT_STREAM = 0, 1, 2


@arguments
class DrawNoise(Arguments):
    """Draw the noise of verification for each row.

    Selection in column c uses position + c. Acceptance uses the position of the first column, and index c: block
    verification reads numbers of drafts that it does not keep, and the next verification must not use them again.
    """

    seeds: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "B", of=("noise_positions",))]
    accept_noise: Annotated[Memory, Out("float32", "B * K")]
    select_noise: Annotated[Memory, Out("float32", "B * (1 + K) * (1 + num_tries) * 4")]
    num_speculative_tokens: int
    num_tries: int
