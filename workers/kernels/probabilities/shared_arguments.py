"""Arguments that the sampler's ops have in common: the logits of targets and drafts, and their statistics."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, arguments


@arguments
class Distributions(Arguments):
    """The logits of a step's columns and of its drafts, and the sampling parameters of its rows."""

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
class Verified(Distributions):
    """Drafts beside the distributions that they are verified by, whose blocks `sampler_stats` has added up."""

    drafts: Annotated[Memory, In("int64", "B * K", of=("scheduled_drafts",))]
    block_max: Annotated[Memory, In("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_sum: Annotated[Memory, In("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
