"""Decide a step again, request by request, from what was true before it.

Decides: who runs and in which order, how many tokens, drafts and blocks each gets, who waits and why, who is preempted.
Does not decide: which free blocks and which state slot a request gets.
"""

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from scenarios.spec import EngineSpec
from workers.log import SkipReason


class Standing(NamedTuple):
    """What the share of a request depends on, as it stands before the step; `drafts` wait to be verified."""

    request: int
    committed: int
    computed: int
    placeholders: int
    drafts: int
    num_blocks: int
    limit: int


class Share(NamedTuple):
    """What a request is due: n tokens, the last d of them drafts, and new blocks; `budget` is what was left before."""

    n: int
    d: int
    num_blocks: int
    is_padded: bool
    is_chunk: bool
    budget: int


class Decision:
    """The shares of a step in scheduling order, the reason of everyone else, and the victims in order.

    `stalled` are held back by an event, `stale` have results of an earlier epoch in flight.
    """

    def __init__(self, spec: EngineSpec, k_step: int, stalled: Set[int], stale: Set[int]) -> None:
        self.shares: dict[int, Share] = {}
        self.waits: dict[int, SkipReason] = {}
        self.victims: list[int] = []
        self._spec = spec
        self._k_step = k_step
        self._stalled = stalled
        self._stale = stale
        self._budget = spec.max_num_batched_tokens
        self._num_free = spec.num_blocks
        self._num_running = 0
        self._has_prefill = False

    def go_on(self, running: Sequence[Standing]) -> None:
        """Give those that run, who own every block in use, their shares; the last of them is preempted for blocks."""
        self._num_free -= sum(standing.num_blocks for standing in running)
        left = len(running)
        for index, standing in enumerate(running):
            if index >= left:
                break
            reason = self._reason_to_wait(standing)
            if reason is not None:
                self.waits[standing.request] = reason
                continue
            share = self._share(standing, standing.drafts)
            while share.num_blocks > self._num_free and left > index:
                left -= 1
                self.victims.append(running[left].request)
                self._num_free += running[left].num_blocks
            if left > index:
                self._give(standing, share)
        self._num_running = left

    def admit(self, queue: Iterable[Standing]) -> None:
        """Let in those that wait, first come first served: only the stalled and the stale are passed over."""
        closed: SkipReason | None = "preempted" if self.victims else None
        for standing in queue:
            reason = closed or self._try_admit(standing)
            if reason is not None:
                self.waits[standing.request] = reason
            if reason in ("budget", "blocks", "rows"):
                closed = reason

    def _reason_to_wait(self, standing: Standing) -> SkipReason | None:
        if standing.request in self._stalled:
            return "stalled"
        # Even if every draft in flight is rejected, what is in flight reaches the limit.
        if standing.placeholders and standing.computed + 2 - standing.placeholders >= standing.limit:
            return "limit"
        if standing.computed >= self._spec.max_model_len:
            return "model_length"
        return None if self._budget else "budget"

    def _try_admit(self, standing: Standing) -> SkipReason | None:
        num_drafts = self._spec.num_speculative_tokens
        if standing.request in self._stalled:
            return "stalled"
        if standing.request in self._stale:
            return "stale"
        if self._num_running >= self._spec.max_num_seqs:
            return "rows"
        is_padded = self._is_padded(standing)
        if not self._budget or (is_padded and self._budget < 1 + num_drafts):
            return "budget"
        share = self._share(standing, num_drafts if is_padded else 0, is_padded)
        if share.num_blocks > self._num_free:
            return "blocks"
        self._give(standing, share)
        self._num_running += 1
        return None

    def _is_padded(self, standing: Standing) -> bool:
        """Tell whether a request that joins with one token gets drafts, so that the batch stays uniform."""
        spec = self._spec
        return (
            spec.pad
            and standing.committed == 1
            and self._k_step == spec.num_speculative_tokens > 0
            and bool(self.shares)
            and not self._has_prefill
            and 1 + spec.num_speculative_tokens <= spec.max_model_len
        )

    def _share(self, standing: Standing, drafts: int, is_padded: bool = False) -> Share:
        spec, computed = self._spec, standing.computed
        ahead = standing.committed + standing.placeholders - computed
        wanted = ahead + drafts
        threshold = spec.long_prefill_token_threshold
        is_prompt = computed < standing.committed - 1
        if threshold and is_prompt:
            wanted = min(wanted, threshold)
        if spec.is_aligned and is_prompt:
            # A state is kept at the end of every block, so no chunk runs past one.
            end_of_block = (computed // spec.block_size + 1) * spec.block_size
            wanted = min(wanted, end_of_block - computed)
        n = min(wanted, self._budget, spec.max_model_len - computed)
        length = min(computed + n + spec.num_speculative_tokens, spec.max_model_len)
        num_blocks = max(0, -(-length // spec.block_size) - standing.num_blocks)
        return Share(n, max(0, n - ahead), num_blocks, is_padded, n < ahead, self._budget)

    def _give(self, standing: Standing, share: Share) -> None:
        self.shares[standing.request] = share
        self._budget -= share.n
        self._num_free -= share.num_blocks
        self._has_prefill |= share.n > 1 + share.d or share.is_chunk
