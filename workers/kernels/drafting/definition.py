"""Reference code shared by drafters: KV entries, script entries and scratch writes of a row."""

from collections.abc import Iterator, Sequence

from workers.kernels.arithmetic.definition import WORDS, attention_weight
from workers.kernels.drafting.shared_arguments import CachedDrafts, ScriptedDrafts
from workers.kernels.sentinels import NO_DRAFT


def cleared_rows(a: ScriptedDrafts) -> Iterator[int]:
    """Clear `raw` and `draft_tokens` of all rows; yield the rows that are not padding."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        for column in range(k):
            a.raw[row * k + column] = 0
            a.draft_tokens[row * k + column] = NO_DRAFT
        if a.num_scheduled[row] > 0:
            yield row


def table_of(a: CachedDrafts, row: int) -> list[int]:
    """Return the block table of a row."""
    return [int(a.block_table[row * a.max_blocks + entry]) for entry in range(a.max_blocks)]


def cached_entries(a: CachedDrafts, row: int, last: int) -> list[int]:
    """Return the drafter's KV entries of a row at positions 0 to `last`."""
    table = table_of(a, row)
    words = []
    for position in range(last + 1):
        block, offset = table[position // a.block_size], position % a.block_size
        words.append(int(a.drafter_kv[block * a.block_size + offset]))
    return words


def attention_output(words: Sequence[int], position: int) -> int:
    """Return the attention output at a position over KV entries `words`, from position 0 on."""
    total = 0
    for at, word in enumerate(words):
        total += word * attention_weight(position, at)
    return total % WORDS


def write_scratch(a: CachedDrafts, row: int, word: int, position: int) -> None:
    """Write the KV entry of a draft token, if its position has a slot."""
    if position >= a.max_model_len:
        return
    block, offset = table_of(a, row)[position // a.block_size], position % a.block_size
    if block >= 0:
        a.drafter_kv[block * a.block_size + offset] = word


def script_entry(a: ScriptedDrafts, row: int, position: int) -> int:
    """Return the script's entry for a position of a row.

    Past the end of the model, its last entry.
    """
    return int(a.script[int(a.state_slot[row]) * a.max_model_len + min(position, a.max_model_len - 1)])
