"""Verify drafts against the target model."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class RejectionSample(Arguments):
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus.

    Greedy: a draft is accepted iff it is the target's argmax, lowest index first; NO_DRAFT never is. Valid tokens
    are a contiguous prefix, the rest is NO_TOKEN. Padding rows, and rows marked invalid, have none. A column
    without a largest logit (one is NaN or inf, or all are -inf) has no token: the row ends before it.
    Source: Leviathan et al., arXiv 2211.17192, at temperature 0; vLLM PR #37238.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * V")]
    scheduled_drafts: Annotated[Memory, In("int64", "B * K")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    invalid: Annotated[Memory, In("int64", "B")]
    sampled: Annotated[Memory, Out("int64", "B * (1 + K)")]
    num_speculative_tokens: int
    vocab_size: int
