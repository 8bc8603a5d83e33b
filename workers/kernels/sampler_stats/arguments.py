"""Reduce the logits of a step to maxima and sums over blocks of the vocabulary: the one pass over all of them."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class SamplerStats(Arguments):
    """Find the maximum of each block of the vocabulary, and add up its weights relative to that maximum.

    Rows of temperature 0 have no sums. Columns past the drafts, and the draft logits of rows of temperature 0 and
    of rows whose drafts have all the probability of their draft distribution (point_mass), are not read; nothing is
    written for them. A block with NaN or inf has the maximum NaN.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * logits_stride")]
    draft_logits: Annotated[Memory, In("float32", "num_state_slots * K * draft_stride")]
    draft_slots: Annotated[Memory, In("int64", "B", of=("state_slot",))]
    floors: Annotated[Memory, In("float32", "B * (1 + K)")]
    temperature: Annotated[Memory, In("float32", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    point_mass: Annotated[Memory, In("int64", "B")]
    block_max: Annotated[Memory, Out("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_sum: Annotated[Memory, Out("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_best: Annotated[Memory, Out("int64", "B * (1 + K) * num_vocab_blocks")]
    tile_sum: Annotated[Memory, Out("float32", "B * (1 + K) * num_vocab_blocks * num_tiles")]
    num_speculative_tokens: int
    vocab_size: int
    logits_stride: int
    draft_stride: int
    block_size: int
    tile_size: int
