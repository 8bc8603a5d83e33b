"""Decide which drafts a step keeps and which token follows them, greedily or by chance, row by row."""

from typing import Annotated

from workers.kernels.argument import In, Memory, Out, arguments
from workers.kernels.probabilities.shared_arguments import Verified

# The draft is kept iff it is what the noise of its position samples from the target; so tokens depend on no draft.
STRICT = 0
# The draft is kept with probability min(1, p / q). Source: arXiv 2211.17192.
STANDARD = 1
# The draft is kept with a given probability; not lossless.
SYNTHETIC = 2
# Drafts are kept together. Source: arXiv 2403.10444.
BLOCK = 3
# Bits of a row's status.
DRAFT_OUTSIDE_VOCABULARY = 1
TARGET_UNDEFINED = 2
DRAFT_UNDEFINED = 4


@arguments
class VerifyDrafts(Verified):
    """Emit the drafts of each row that are kept, and one token more: recovered, or bonus.

    Rows of temperature 0 keep a draft iff it is the target's best token, lowest index first. A draft that was never
    proposed (NO_DRAFT) ends the drafts of its row, as does one outside the vocabulary or one without draft
    probabilities (both have a bit in the status): the next token comes from the target there. Where the target has
    none (NaN, inf or only -inf, a bit in the status), the row ends without a token. Valid tokens are a contiguous
    prefix, the rest is NO_TOKEN; padding rows, and rows marked invalid, have none. A token is selected from a
    distribution by block, tile and token, each by its own noise. The residual of a rejected certain draft is every
    other token. A token of the residual max(p - q, 0) is a token of p that is kept with probability max(p - q, 0) / p:
    a few are tried, and when all fail the residual is summed.
    """

    num_scheduled: Annotated[Memory, In("int64", "B")]
    invalid: Annotated[Memory, In("int64", "B")]
    rates: Annotated[Memory, In("float32", "K")]
    block_best: Annotated[Memory, In("int64", "B * (1 + K) * num_vocab_blocks")]
    tile_sum: Annotated[Memory, In("float32", "B * (1 + K) * num_vocab_blocks * num_tiles")]
    residual: Annotated[Memory, In("float32", "B * K * num_vocab_blocks")]
    accept_noise: Annotated[Memory, In("float32", "B * K")]
    select_noise: Annotated[Memory, In("float32", "B * (1 + K) * (1 + num_tries) * 4")]
    sampled: Annotated[Memory, Out("int64", "B * (1 + K)")]
    status: Annotated[Memory, Out("int64", "B", of=("sampler_status",))]
    method: int
    num_tries: int
    tile_size: int
