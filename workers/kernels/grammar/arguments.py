"""Structured output on the device: drafts that the host has checked, and masks of the allowed tokens."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments


@arguments
class GrammarDrafts(Arguments):
    """Let `rows` verify the drafts that the host names, not those the device proposed.

    NO_DRAFT where the host cut drafts off; the model is fed an id all the same.
    """

    rows: Annotated[Memory, In("int64", "count", of=("grammar_rows",))]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    host_ids: Annotated[Memory, In("int64", "T")]
    input_ids: Annotated[Memory, InOut("int64", "T")]
    scheduled_drafts: Annotated[Memory, InOut("int64", "B * K")]
    num_speculative_tokens: int


@arguments
class ApplyMasks(Arguments):
    """Set the logits that a mask leaves out to -inf: mask i is that of column columns[i]."""

    columns: Annotated[Memory, In("int64", "count")]
    masks: Annotated[Memory, In("int64", "count * num_words")]
    logits: Annotated[Memory, InOut("float32", "B * (1 + K) * V")]
    vocab_size: int
