"""Arguments shared by the sampler's ops: target and draft logits, and their statistics."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, arguments


@arguments
class Distributions(Arguments):
    """Target and draft logits of a step, and the sampling parameters of its rows."""

    logits: Annotated[Memory, In("float32", "B * (1 + K) * logits_stride")]
    draft_logits: Annotated[Memory, In("float32", "num_state_slots * K * draft_stride")]
    draft_slots: Annotated[Memory, In("int64", "B", of=("state_slot",))]
    floors: Annotated[Memory, In("float32", "B * (1 + K)")]
    temperature: Annotated[Memory, In("float32", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    point_mass: Annotated[Memory, In("int64", "B")]
    num_speculative_tokens: int
    vocab_size: int
    logits_stride: int
    draft_stride: int
    block_size: int


@arguments
class VerifiedDrafts(Distributions):
    """Draft tokens of each row, with the target and draft distributions that verify them.

    `sampler_stats` has added up their blocks.
    """

    drafts: Annotated[Memory, In("int64", "B * K", of=("scheduled_drafts",))]
    block_max: Annotated[Memory, In("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_sum: Annotated[Memory, In("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
