"""Drafts drawn from a draft model's distribution, whose logits are kept until the drafts are verified."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.draft_model.arguments import DraftModelChain

# One number selects a block of the vocabulary, one a tile in that, and one a token in that.
NUMBERS_PER_DRAFT = 3


@arguments
class DraftNoise(Arguments):
    """Draw the noise of the drafts behind each row's next token.

    All drafts of a row have the position of the first and, beside it, their number: which drafts are kept may depend on
    a later one that is not, and on its noise, so the next step draws others.
    """

    seeds: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    draft_noise: Annotated[Memory, Out("float32", f"B * K * {NUMBERS_PER_DRAFT}")]
    num_speculative_tokens: int


@arguments
class DrawnChain(DraftModelChain):
    """Predict like `draft_model_chain`, and draw the drafts of rows at a temperature whose drafts are not certain.

    The draft of such a row is drawn from the model's distribution, whose logits go to its slot. The script adds
    nothing to it: where it says 1 the logits are those of another hidden word, so that the target does not share
    them. `own` is the argmax of the logits that a draft is drawn from. A row without a valid token draws nothing
    and leaves its slot as it is.
    """

    temperature_bits: Annotated[Memory, In("int64", "B")]
    point_mass: Annotated[Memory, In("int64", "B")]
    draft_noise: Annotated[Memory, In("float32", f"B * K * {NUMBERS_PER_DRAFT}")]
    draft_logits: Annotated[Memory, InOut("float32", "num_scripts * K * V")]
    vocab_block_min: int
    tile_size: int
