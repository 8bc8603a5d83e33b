"""Drafts drawn from a draft model's distribution, whose logits are kept until the drafts are verified."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments

# A block of the vocabulary, a tile of that, and a token of that are selected, each by a number.
NUMBERS_PER_DRAFT = 3


@arguments
class DraftNoise(Arguments):
    """Draw the noise of the drafts behind each row's next token.

    All drafts of a row have the position of the first and, beside it, their number: a draft that is not kept, and
    its noise, may have had a say in what is kept before it, so the next step draws others.
    """

    seeds: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    draft_noise: Annotated[Memory, Out("float32", f"B * K * {NUMBERS_PER_DRAFT}")]
    num_speculative_tokens: int


@arguments
class DrawnChain(Arguments):
    """Predict like `draft_model_chain`, and draw the drafts of rows at a temperature whose drafts are not certain.

    The draft of such a row is drawn from the model's distribution, whose logits go to its slot. The script adds
    nothing to it: where it says 1 the logits are those of another hidden word, so that the target does not share
    them. `own` is the argmax of the logits that a draft is drawn from. A row without a valid token draws nothing
    and leaves its slot as it is.
    """

    next_tokens: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    valid: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    script: Annotated[Memory, In("int64", "num_scripts * max_model_len")]
    temperature_bits: Annotated[Memory, In("int64", "B")]
    point_mass: Annotated[Memory, In("int64", "B")]
    draft_noise: Annotated[Memory, In("float32", f"B * K * {NUMBERS_PER_DRAFT}")]
    drafter_states: Annotated[Memory, In("uint64", "num_state_slots * (2 + K)")]
    drafter_conv: Annotated[Memory, In("uint64", "num_state_slots * (W + K)")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    draft_logits: Annotated[Memory, InOut("float32", "num_scripts * K * V")]
    raw: Annotated[Memory, Out("uint64", "B * K")]
    own: Annotated[Memory, Out("int64", "B * K")]
    draft_tokens: Annotated[Memory, Out("int64", "B * K")]
    block_size: int
    max_blocks: int
    num_blocks_max: int
    max_model_len: int
    num_speculative_tokens: int
    num_proposed: int
    vocab_size: int
    conv_width: int
