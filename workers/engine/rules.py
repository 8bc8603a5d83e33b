"""Scheduling rules: blocks, token budget, draft tokens to verify, counts, request ends."""

from collections.abc import Sequence

from scenarios.events import PreemptMode
from scenarios.spec import EngineSpec
from workers.engine.block_pool import Pool
from workers.engine.grammar_rules import length_in_grammar
from workers.engine.prefix_cache import CachingPool
from workers.engine.request import PlanRow, Request
from workers.kernels.sentinels import PAD_BLOCK
from workers.lanes.lane import Span


def blocks_to_cover(request: Request, n: int, spec: EngineSpec) -> int:
    """Return the number of blocks a request needs for `n` more tokens and the drafts after them.

    They cover all tokens in flight, the `n` tokens, and the draft tokens that follow.
    """
    length = min(request.num_computed + n + spec.num_speculative_tokens, spec.max_model_len)
    return -(-length // spec.block_size)


def blocks_to_free(request: Request, block_size: int) -> list[int]:
    """Return the KV-cache blocks that a request frees when it stops running: all of its blocks."""
    return request.blocks


def clip_to_block(request: Request, n: int, block_size: int) -> int:
    """Return `n`, shortened so that a prefill chunk ends at the next block end.

    Used if recurrent states are stored with blocks.

    A prefill chunk stores two states, before and after its last token, so no block boundary may precede them.
    """
    return min(n, block_size - request.num_computed % block_size)


def block_to_resume_from(row: PlanRow, block_size: int) -> int:
    """Return the block with the recurrent state after a row's prefix-cache hit, or PAD_BLOCK.

    It is the last shared block.
    """
    return row.request.blocks[(row.num_computed - 1) // block_size] if row.scheduled.blocks.shared else PAD_BLOCK


def usable_hits(blocks: list[int]) -> list[int]:
    """Return the blocks of a prefix-cache hit that a request may use: all but the last.

    The drafter's KV entry of the last token depends on the token that follows, which may differ here.
    """
    return blocks[:-1]


def tokens_to_cache(request: Request, cut: Sequence[int]) -> list[int]:
    """Return the tokens whose full blocks may be registered in the prefix cache: the committed."""
    return request.tokens


def num_cacheable(num_tokens: int, num_computed: int) -> int:
    """Return the number of tokens whose KV entries no later step rewrites.

    The last known token may have to be computed again: it is the first that its step verifies, and if no sampled token
    is valid, its drafter's KV entry is not written.
    """
    return min(num_computed, num_tokens - 1)


def take_blocks(pool: CachingPool, shared: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Add references to a hit's `shared` blocks and allocate `count` more; None if too few.

    None, without any change, if there are fewer.
    """
    if not pool.has_room(shared, count):
        return None
    pool.share(shared)
    return pool.take(count)


def blocks_still_lost(earlier: Sequence[int], lost: Sequence[int]) -> list[int]:
    """Return the blocks to poison in the next step: lost by any reset since the last step."""
    return [*earlier, *lost]


def tokens_to_search(request: Request) -> Sequence[int]:
    """Return the tokens in which a host drafter searches: all committed tokens of a request."""
    return request.tokens


def forgets_drafts(request: Request) -> bool:
    """Return whether a host drafter drops a request's data when its blocks are freed: always.

    It does, because the request may never run again.
    """
    return True


def drafts_after(row: PlanRow, k_step: int) -> int:
    """Return how many draft tokens the request of this row verifies in its next step.

    0 after a non-final prefill chunk.
    """
    return 0 if row.discard else k_step


def budget_used(n: int, d: int) -> int:
    """Return how much of the token budget a row with `n` tokens uses: all `n`, with drafts."""
    return n


def room_for(request: Request, wanted: int, max_model_len: int) -> int:
    """Return how many of `wanted` tokens fit within the model's maximum length."""
    return min(wanted, max_model_len - request.num_computed)


def placeholders_for(row: PlanRow) -> int:
    """Return how many tokens a row may sample: 1 + drafts, 0 for a non-final prefill chunk."""
    return 0 if row.discard else 1 + row.scheduled.d


def take_state_slot(request: Request, slots: Pool) -> int:
    """Allocate a recurrent-state slot for a request at each admission."""
    taken = slots.take(1)
    assert taken is not None, "no state slot is free, but there is one per row"
    return taken[0]


def has_state(request: Request, slots: Pool) -> bool:
    """Return whether a request has, or can get, a recurrent-state slot."""
    return request.state_slot >= 0 or slots.num_free > 0


def subtract_stale(request: Request, row: PlanRow, sampled: Sequence[int]) -> None:
    """Subtract a preempted row's scheduled tokens from its request's stale tokens in flight.

    All its scheduled tokens count, not only the accepted ones.
    """
    request.num_stale -= row.scheduled.n


def reset_counts(request: Request, mode: PreemptMode) -> None:
    """Reset the counts of a preempted request; results of its tokens in flight become stale."""
    request.num_computed = request.num_placeholders = request.num_drafts_next = 0


def deliver_stale(request: Request, row: PlanRow, sampled: Sequence[int]) -> Sequence[int]:
    """Return a preempted row's tokens for delivery; none if the preemption drops them."""
    return () if row.scheduled.epoch < request.drop_before else sampled


def has_ended(request: Request) -> bool:
    """Return whether a request has ended or was aborted, and so ignores further results."""
    return request.finish_reason is not None


def abort_reason(request: Request) -> str:
    """Return the finish reason of an aborted request.

    One that has already ended keeps its reason.
    """
    return request.finish_reason or "abort"


def runs_drafter(rows: Sequence[PlanRow]) -> bool:
    """Return whether a step runs the drafter: whenever it has a row.

    The drafter's KV cache must hold every token that the target has computed, including prefill chunks.
    """
    return len(rows) > 0


def accepted_length(request: Request, sampled: Sequence[int]) -> tuple[int, str | None]:
    """Return how many sampled tokens a request accepts, and the finish reason if it ends there."""
    stop, left = request.stop, request.length_limit - len(request.tokens)
    if len(sampled) < left and stop.isdisjoint(sampled) and not request.params.grammar:
        return len(sampled), None
    in_grammar = length_in_grammar(request, sampled) if request.params.grammar else len(sampled) + 1
    for count, token in enumerate(sampled, 1):
        if token in stop or count == in_grammar:
            return count, "stop"
        if count >= left:
            return count, "length"
    return len(sampled), None


def logits_for_logprobs(logits: Span, kept: Span) -> Span:
    """Return the logits that raw logprobs are computed from: the copy from before processing.

    Source: vLLM PR #30846.
    """
    return kept


def logprob_rows(rows: Sequence[int], num_rows_now: int) -> Sequence[int]:
    """Return the row indexes of the logprobs that were copied to the host: the step's own rows."""
    return rows
