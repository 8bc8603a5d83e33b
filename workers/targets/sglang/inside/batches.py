"""Values of a scheduler and its batches that are recorded for each rank: token counts, sampled tokens, leaks."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Counts(NamedTuple):
    """Tokens of each batch row: all, draft tokens, and how many tokens each row of a decode step verifies."""

    tokens: list[int]
    drafts: list[int]
    num_verified: int


def counts_of(batch: Any, forward_mode: Any, num_tokens: int) -> Counts:
    """Return how many tokens each batch row has in a model call with this number of tokens."""
    num_rows = len(batch.reqs)
    if forward_mode.is_target_verify():
        width = num_tokens // num_rows
        return Counts([width] * num_rows, [width - 1] * num_rows, width)
    return Counts([1] * num_rows if forward_mode.is_decode() else list(batch.extend_lens), [0] * num_rows, 0)


def rows_without_token(batch: Any) -> list[bool]:
    """Return for each batch row whether no token is sampled.

    That is so for each prefill chunk except the last, and for a request that was retracted meanwhile.
    """
    return [request.inflight_middle_chunks > 0 or request.is_retracted for request in batch.reqs]


def sampled_of(result: Any, without: Sequence[bool]) -> list[list[int]]:
    """Return the sampled tokens of each batch row, cut to the accepted ones."""
    tokens, count = result.next_token_ids.tolist(), len(without)
    accepted = [1] * count if result.accept_lens is None else result.accept_lens.tolist()
    width = len(tokens) // count
    rows = [tokens[row * width : row * width + kept] for row, kept in enumerate(accepted)]
    return [[] if nothing else row for nothing, row in zip(without, rows, strict=True)]


def leaks_of(scheduler: Any) -> dict[str, int]:
    """Return how many slots and requests a scheduler holds after the last request."""
    slots, tree, pool = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache, scheduler.req_to_token_pool
    locked = tree.protected_size()
    held = {
        "slots": slots.size - slots.available_size() - tree.evictable_size() - locked,
        "slots of the tree that are referred to": locked,
        "rows of the pool": pool.size - pool.available_size(),
        "requests of the scheduler": len(scheduler.waiting_queue) + len(scheduler.running_batch.reqs),
    }
    return {name: count for name, count in held.items() if count}
