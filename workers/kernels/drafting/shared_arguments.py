"""Arguments shared by drafters: rows and scripts, and the KV cache of a draft chain."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments


@arguments
class ScriptedDrafts(Arguments):
    """Arguments of ops that propose scripted draft tokens after each row's last kept token."""

    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    valid: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    script: Annotated[Memory, In("int64", "num_scripts * max_model_len")]
    raw: Annotated[Memory, Out("uint64", "B * K")]
    draft_tokens: Annotated[Memory, Out("int64", "B * K")]
    max_model_len: int
    num_speculative_tokens: int
    num_proposed: int


@arguments
class CachedDrafts(ScriptedDrafts):
    """Arguments of ops that propose draft tokens from the drafter's KV cache."""

    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    block_size: int
    max_blocks: int
    num_blocks_max: int
