"""Reference scheduler: recompute the decision and the row order of each step.

Decides: the scheduled requests in order, their numbers of tokens, draft tokens and blocks; the reasons of skipped
requests; the preempted requests.
Does not decide: which state slot a request gets and, without a prefix cache, which free blocks.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from scenarios.draw import draw
from scenarios.events import Reorder
from scenarios.spec import EngineSpec
from workers.oracle.derived import keeps_states_with_blocks
from workers.oracle.prefix_cache import CachedBlocks
from workers.record.log import ScheduledRow, SkipReason


@dataclass(slots=True, eq=False)
class RequestState:
    """A request's counts and blocks before a step, from which its tokens are decided.

    `drafts` is the number of draft tokens to verify. With a prefix cache: its `blocks`, the `prefixes` at the ends of
    its full blocks, and the number of blocks that need not be registered (`num_cached`).
    """

    request: int
    committed: int
    computed: int
    placeholders: int
    drafts: int
    num_blocks: int
    limit: int
    priority: int = 0
    blocks: tuple[int, ...] = ()
    prefixes: tuple[int, ...] = ()
    num_cached: int = 0


def victim_of(spec: EngineSpec, running: Sequence[RequestState]) -> RequestState:
    """Return the request to preempt: the last admitted, or by priority the least urgent."""
    if spec.policy == "fcfs":
        return running[-1]
    return max(running, key=lambda state: (state.priority, state.request))


@dataclass(slots=True, eq=False)
class Share:
    """One request's part of a step: `n` tokens, the last `d` of them draft tokens; new blocks.

    `budget` is the token budget left before it. With a prefix cache, `shared` has the blocks of its prefix-cache hit
    and `blocks` the new blocks, once they are allocated.
    """

    n: int
    d: int
    num_blocks: int
    is_padded: bool
    is_chunk: bool
    budget: int
    shared: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()


class Decision:
    """A step's decision: scheduled, skipped (with reasons) and preempted requests.

    Sets of requests: `stalled` are held back by an event, `stale` have results of an earlier epoch in flight,
    `grammars` have a grammar. `cache` is the prefix cache before the step; the decision changes it.
    """

    def __init__(
        self,
        spec: EngineSpec,
        k_step: int,
        stalled: Set[int],
        stale: Set[int],
        grammars: Set[int],
        cache: CachedBlocks | None = None,
    ) -> None:
        self.shares: dict[int, Share] = {}
        self.waits: dict[int, SkipReason] = {}
        self.victims: list[int] = []
        self.returned: list[Share | None] = []
        self._spec = spec
        self._k_step = k_step
        self._stalled = stalled
        self._stale = stale
        self._grammars = grammars
        self._cache = cache
        # Read once: attributes of a specification are slow.
        self._length_max, self._block_size = spec.max_model_len, spec.block_size
        self._num_drafts, self._threshold = spec.num_speculative_tokens, spec.long_prefill_token_threshold
        self._budget = spec.max_num_batched_tokens
        self._num_free = spec.num_blocks
        self._num_running = 0
        self._has_prefill = False
        self._registered: set[int] = set()

    def schedule_running(self, running: Sequence[RequestState]) -> None:
        """Schedule the running requests; preempt some if the block pool is exhausted."""
        self._num_free -= sum([state.num_blocks for state in running])
        if self._cache is not None:
            self._num_free = self._cache.num_free
        victims = self.victims
        for state in running:
            if state.request in victims:
                continue
            reason = self._reason_to_wait(state)
            if reason is not None:
                self.waits[state.request] = reason
                continue
            share = self._share(state, state.drafts)
            while share.num_blocks > self._num_free and state.request not in victims:
                self._preempt(victim_of(self._spec, [each for each in running if each.request not in victims]))
            if state.request not in victims:
                self._give(state, share)
        self._num_running = len(running) - len(victims)
        for state in running if self._cache is not None else ():
            if state.request in self.shares:
                self._register(state, self.shares[state.request])

    def _preempt(self, victim: RequestState) -> None:
        """Preempt a request: free its blocks and remove it from this step."""
        share = self.shares.pop(victim.request, None)
        self.victims.append(victim.request)
        self.returned.append(share)
        self.waits.pop(victim.request, None)
        self._num_free += victim.num_blocks
        if share is not None:
            self._budget += share.n
            self._num_free += share.num_blocks
        if self._cache is not None:
            self._cache.release(share.blocks if share is not None else ())
            self._cache.release(victim.blocks)
            self._num_free = self._cache.num_free

    def admit(self, queue: Iterable[int], state_of: Callable[[int], RequestState]) -> None:
        """Admit waiting requests in queue order until one does not fit; `waits` says why others wait."""
        closed: SkipReason | None = "preempted" if self.victims else None
        for request in queue:
            reason = closed or self._try_admit(state_of(request))
            if reason is not None:
                self.waits[request] = reason
            if reason in ("budget", "blocks", "rows"):
                closed = reason

    def _reason_to_wait(self, state: RequestState) -> SkipReason | None:
        if state.request in self._stalled:
            return "stalled"
        # The next mask depends on a token that is still in flight.
        if state.request in self._grammars and state.placeholders:
            return "grammar"
        # Even if every draft token in flight is rejected, the tokens in flight reach the limit.
        if state.placeholders and state.computed + 2 - state.placeholders >= state.limit:
            return "limit"
        if state.computed >= self._length_max:
            return "model_length"
        return None if self._budget else "budget"

    def _try_admit(self, state: RequestState) -> SkipReason | None:
        num_drafts = self._num_drafts
        if state.request in self._stalled:
            return "stalled"
        if state.request in self._stale:
            return "stale"
        if self._num_running >= self._spec.max_num_seqs:
            return "rows"
        shared = self._hits(state)
        num_shared = len(shared)
        state = replace(state, computed=num_shared * self._block_size, num_blocks=num_shared, num_cached=num_shared)
        is_padded = self._is_padded(state)
        if not self._budget or (is_padded and self._budget < 1 + num_drafts):
            return "budget"
        share = self._share(state, num_drafts if is_padded else 0, is_padded)
        num_idle = sum([block in self._cache.idle for block in shared]) if self._cache is not None else 0
        if share.num_blocks > self._num_free - num_idle:
            return "blocks"
        self._give(state, replace(share, shared=shared) if shared else share)
        self._register(state, self.shares[state.request])
        self._num_running += 1
        return None

    def _hits(self, state: RequestState) -> tuple[int, ...]:
        """Return the block ids of a request's prefix-cache hit.

        With `last_match: dropped` the last block is not reused, because the drafter's entry at its end may differ. A
        recurrent state is stored at the end of a step, so a block registered in the same step has no state yet.
        """
        if self._cache is None:
            return ()
        found = self._cache.chain(state.prefixes)
        if self._spec.last_match == "dropped":
            found = found[:-1]
        if keeps_states_with_blocks(self._spec):
            for index, block in enumerate(found):
                if block in self._registered:
                    return found[:index]
        return found

    def _register(self, state: RequestState, share: Share) -> None:
        """Register a request's full blocks with tokens that can no longer change."""
        if self._cache is None:
            return
        blocks = (*state.blocks, *share.shared, *share.blocks)
        full = min(state.computed + share.n, state.committed - 1) // self._spec.block_size
        for index in range(state.num_cached, full):
            self._cache.register(blocks[index], state.prefixes[index], None)
            self._registered.add(blocks[index])

    def _is_padded(self, state: RequestState) -> bool:
        """Return whether a request joins with padding drafts, to keep the batch uniform."""
        spec = self._spec
        return (
            spec.pad
            and state.committed - state.computed == 1
            and self._k_step == spec.num_speculative_tokens > 0
            and bool(self.shares)
            and not self._has_prefill
            and state.committed + spec.num_speculative_tokens <= spec.max_model_len
        )

    def _share(self, state: RequestState, drafts: int, is_padded: bool = False) -> Share:
        computed, committed = state.computed, state.committed
        length_max, block_size = self._length_max, self._block_size
        ahead = committed + state.placeholders - computed
        wanted = ahead + drafts
        if computed < committed - 1:
            wanted = min(wanted, self._threshold or wanted)
            if keeps_states_with_blocks(self._spec):
                # A recurrent state is stored at the end of every block, so a prefill chunk ends there.
                end_of_block = (computed // block_size + 1) * block_size
                wanted = min(wanted, end_of_block - computed)
        n = min(wanted, self._budget, length_max - computed)
        length = computed + n + self._num_drafts
        num_missing = -(-(length if length < length_max else length_max) // block_size) - state.num_blocks
        num_drafts, num_blocks = n - ahead if n > ahead else 0, num_missing if num_missing > 0 else 0
        return Share(n, num_drafts, num_blocks, is_padded, n < ahead, self._budget)

    def _give(self, state: RequestState, share: Share) -> None:
        self._budget -= share.n
        self._num_free -= share.num_blocks
        if self._cache is not None:
            self._cache.share(share.shared)
            share.blocks = self._cache.next_ones(share.num_blocks)
            self._cache.claim(share.blocks)
            self._num_free = self._cache.num_free
        self.shares[state.request] = share
        if share.is_chunk or share.n > 1 + share.d:
            self._has_prefill = True


class RowOrder:
    """The order of requests in the persistent batch: (request, epoch) of each row."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rows: list[tuple[int, int]] = []
        self._members: set[tuple[int, int]] = set()
        self._requests: tuple[int, ...] = ()

    def update(self, scheduled: Sequence[ScheduledRow], tick: int, reorder: Reorder | None) -> tuple[int, ...]:
        """Update the batch to a step's requests; return them in row order.

        Joining requests fill the first free rows; then the last rows move into the remaining free rows.
        """
        joining = dict.fromkeys([(row.request, row.epoch) for row in scheduled])
        if joining.keys() != self._members:
            self._members = set(joining)
            self._rows = self._filled(joining)
        elif reorder is None:
            return self._requests
        if reorder is not None:
            self._rows = self._permuted(self._rows, tick, reorder)
        self._requests = tuple([request for request, _ in self._rows])
        return self._requests

    def _filled(self, joining: dict[tuple[int, int], None]) -> list[tuple[int, int]]:
        """Return the rows after joining requests, then last rows, have moved into freed rows."""
        places: list[tuple[int, int] | None] = []
        for key in self._rows:
            stays = key in joining
            places.append(key if stays else None)
            if stays:
                del joining[key]
        for key in joining:
            if None in places:
                places[places.index(None)] = key
            else:
                places.append(key)
        while None in places:
            last = places.pop()
            if last is not None:
                places[places.index(None)] = last
        return [key for key in places if key is not None]

    def _permuted(self, rows: list[tuple[int, int]], tick: int, reorder: Reorder) -> list[tuple[int, int]]:
        match reorder.how:
            case "reverse":
                return rows[::-1]
            case "rotate":
                return rows[1:] + rows[:1]
            case "shuffle":
                key = str(tick)
                places = sorted(range(len(rows)), key=lambda row: draw(self._seed, "shuffle", key, row))
                return [rows[place] for place in places]
