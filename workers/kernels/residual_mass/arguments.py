"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class ResidualMass(Arguments):
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all.

    Written for rows of a temperature, columns from 1 up to the last usable draft.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * logits_stride")]
    draft_logits: Annotated[Memory, In("float32", "num_state_slots * K * draft_stride")]
    draft_slots: Annotated[Memory, In("int64", "B", of=("state_slot",))]
    floors: Annotated[Memory, In("float32", "B * (1 + K)")]
    temperature: Annotated[Memory, In("float32", "B")]
    drafts: Annotated[Memory, In("int64", "B * K", of=("scheduled_drafts",))]
    num_drafts: Annotated[Memory, In("int64", "B")]
    point_mass: Annotated[Memory, In("int64", "B")]
    block_max: Annotated[Memory, In("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_sum: Annotated[Memory, In("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    residual: Annotated[Memory, Out("float32", "B * K * num_vocab_blocks")]
    num_speculative_tokens: int
    vocab_size: int
    logits_stride: int
    draft_stride: int
    block_size: int
