"""Scheduling rules: blocks to take and to free, budget, drafts to verify next, counts of requests, and their ends."""

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
    """Return the number of blocks a request must own: for all in flight, n more tokens, and the drafts that follow."""
    length = min(request.num_computed + n + spec.num_speculative_tokens, spec.max_model_len)
    return -(-length // spec.block_size)


def blocks_to_free(request: Request, block_size: int) -> list[int]:
    """Return the blocks to free for a request: all of them, those past its tokens too."""
    return request.blocks


def clip_to_block(request: Request, n: int, block_size: int) -> int:
    """Return how many of n prompt tokens a step computes where states are kept with blocks: up to the block's end.

    A chunk keeps two states, those before and after its last token, so no boundary may lie before them.
    """
    return min(n, block_size - request.num_computed % block_size)


def block_to_go_on_from(row: PlanRow, block_size: int) -> int:
    """Return the block whose recurrent state a row that joins continues from: the last shared one, or PAD_BLOCK."""
    return row.request.blocks[(row.num_computed - 1) // block_size] if row.scheduled.blocks.shared else PAD_BLOCK


def usable_hits(blocks: list[int]) -> list[int]:
    """Return the blocks of a chain that may be shared: all but the last.

    What the drafter keeps for its last token depends on the token that follows, which may be another one here.
    """
    return blocks[:-1]


def tokens_to_cache(request: Request, cut: Sequence[int]) -> list[int]:
    """Return the tokens whose blocks may be cached: the committed ones, without those `cut` off behind an end."""
    return request.tokens


def num_cacheable(num_tokens: int, num_computed: int) -> int:
    """Return the number of tokens that are final in the caches: the last one known may have to be computed again.

    It is the first that its step verifies: if that yields nothing, its drafter's word is not written.
    """
    return min(num_computed, num_tokens - 1)


def take_blocks(pool: CachingPool, shared: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Share `shared` blocks and take `count` others; return None and change nothing if there are fewer."""
    if not pool.has_room(shared, count):
        return None
    pool.share(shared)
    return pool.take(count)


def history_of(request: Request) -> Sequence[int]:
    """Return the tokens that a drafter on the host searches: all that are committed."""
    return request.tokens


def forgets_drafts(request: Request) -> bool:
    """Tell whether a drafter on the host forgets a request that gives its blocks back: it may never run again."""
    return True


def drafts_after(row: PlanRow, k_step: int) -> int:
    """Return the drafts that the step after a row is to verify: none after a chunk that was not the last."""
    return 0 if row.discard else k_step


def budgeted(n: int, d: int) -> int:
    """Return a row's share of the step's budget: all its n tokens, its d drafts too."""
    return n


def room_for(request: Request, wanted: int, max_model_len: int) -> int:
    """Return how many of the tokens wanted have a position in the model."""
    return min(wanted, max_model_len - request.num_computed)


def placeholders_for(row: PlanRow) -> int:
    """Return the tokens that a row may sample; a chunk that is not the last brings none."""
    return 0 if row.discard else 1 + row.scheduled.d


def take_state_slot(request: Request, slots: Pool) -> int:
    """Take the state slot of a request that is admitted: a free one, each time anew."""
    taken = slots.take(1)
    assert taken is not None, "as many state slots as rows"
    return taken[0]


def has_state(request: Request, slots: Pool) -> bool:
    """Tell whether a request that needs blocks has a state slot, or may take one."""
    return request.state_slot >= 0 or slots.num_free > 0


def drain_stale(request: Request, row: PlanRow, sampled: Sequence[int]) -> None:
    """Subtract a row of an earlier epoch from what is in flight: all it scheduled, however much of it was accepted."""
    request.num_stale -= row.scheduled.n


def reset_counts(request: Request, mode: PreemptMode) -> None:
    """Reset the counts of a request that loses its blocks, those of tokens in flight too."""
    request.num_computed = request.num_placeholders = request.num_drafts_next = 0


def delivered_stale(request: Request, row: PlanRow, sampled: Sequence[int]) -> Sequence[int]:
    """Return the tokens that a row of an earlier epoch delivers: all it sampled, unless its epoch was dropped."""
    return () if row.scheduled.epoch < request.drop_before else sampled


def is_over(request: Request) -> bool:
    """Tell whether a request takes no more results: it has ended, or was aborted."""
    return request.finish_reason is not None


def reason_of_abort(request: Request) -> str:
    """Return the finish reason of an aborted request: one that has ended already keeps its own."""
    return request.finish_reason or "abort"


def runs_drafter(rows: Sequence[PlanRow]) -> bool:
    """Tell whether a step runs the drafter: any does, also one behind which no draft is wanted.

    The drafter's cache has to hold every token the target has computed, those of chunks too.
    """
    return len(rows) > 0


def end_of(request: Request, sampled: Sequence[int]) -> tuple[int, str | None]:
    """Return the number of sampled tokens a request takes, and its finish reason if it ends with the last of those."""
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


def logits_of(logits: Span, kept: Span) -> Span:
    """Return the logits that raw logprobs are computed from: those copied before they were processed in place.

    Source: vLLM PR #30846.
    """
    return kept


def logprob_rows(rows: Sequence[int], num_rows_now: int) -> Sequence[int]:
    """Return the rows whose logprobs have landed: the step's own, however many rows the batch has by now."""
    return rows
