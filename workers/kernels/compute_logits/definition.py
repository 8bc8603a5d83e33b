"""Compute the logits of each row's last token and its draft tokens."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.arithmetic.definition import logit


@arguments
class ComputeLogits(Arguments):
    """Write the logits of each row's last 1 + d tokens (d draft tokens).

    Columns past d repeat column d.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    logits: Annotated[Memory, Out("float32", "B * (1 + K) * V")]
    num_speculative_tokens: int
    vocab_size: int


def compute_logits(a: ComputeLogits) -> None:
    """Write the logits of each row's last 1 + d tokens; further columns repeat the last one."""
    width = 1 + a.num_speculative_tokens
    for row in range(len(a.num_drafts)):
        num_drafts = int(a.num_drafts[row])
        first = int(a.query_start[row]) + int(a.num_scheduled[row]) - 1 - num_drafts
        for column in range(width):
            token = first + min(column, num_drafts)
            # A padding row has no token: it gets the logits of a neighbouring token, which nothing reads.
            token = min(max(token, 0), len(a.hidden) - 1)
            for word in range(a.vocab_size):
                place = (row * width + column) * a.vocab_size + word
                a.logits[place] = logit(int(a.hidden[token]), word)
