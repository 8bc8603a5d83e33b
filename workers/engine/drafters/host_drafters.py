"""Drafters on the host (suffix, n-gram), and copies of device draft tokens to the host.

If the host proposes or forwards draft tokens, it must have processed the previous step, so this exists at depth 1 only.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from workers.engine.context import Context, Forward
from workers.engine.functions import EngineFunctions
from workers.engine.memory import device_array, ring_size
from workers.engine.request import PlanRow, Request
from workers.engine.step import DraftsInFlight, Step
from workers.kernels.copies.definition import CopyDrafts
from workers.kernels.ngram.definition import NGRAM_MAX
from workers.kernels.sentinels import NO_DRAFT
from workers.lanes.lane import Machine

SUFFIX_MAX = 4


def ngram_drafts(tokens: Sequence[int], num_drafts: int) -> list[int]:
    """Return the tokens after the longest (then latest) earlier match of the last tokens.

    Source: Saxena, "Prompt lookup decoding", 2023.
    """
    longest, end_of_match = 0, 0
    for end in range(len(tokens) - 1, 0, -1):
        length = 0
        while length < min(NGRAM_MAX, end) and tokens[end - 1 - length] == tokens[-1 - length]:
            length += 1
        if length > longest:
            longest, end_of_match = length, end
    return list(tokens[end_of_match : end_of_match + num_drafts]) if longest else []


class SuffixDrafter:
    """Proposes, token by token, the most frequent continuation of the longest known suffix.

    Equally frequent: the lowest id. Counts of each request grow with its tokens.
    Source: Oliaro et al., "SuffixDecoding", arXiv 2411.04975.
    """

    def __init__(self, num_drafts_max: int) -> None:
        self._depth = SUFFIX_MAX + num_drafts_max
        self._counts: dict[int, dict[tuple[int, ...], Counter[int]]] = {}
        self._num_seen: dict[int, int] = {}

    def propose(self, request: int, tokens: Sequence[int], num_drafts: int) -> list[int]:
        """Return up to `num_drafts` draft tokens that continue the tokens of a request."""
        counts = self._grow(request, tokens)
        length = next((n for n in range(min(SUFFIX_MAX, len(tokens)), 0, -1) if tuple(tokens[-n:]) in counts), 0)
        found: list[int] = []
        while length and len(found) < num_drafts:
            follows = counts.get((*tokens[-length:], *found))
            if follows is None:
                break
            found.append(min(follows, key=lambda token: (-follows[token], token)))
        return found

    @property
    def requests(self) -> Sequence[int]:
        """The requests for which the drafter stores token counts."""
        return tuple(self._counts)

    def forget(self, request: int) -> None:
        """Drop the token counts of a request that stops running; its tokens can rebuild them."""
        self._counts.pop(request, None)
        self._num_seen.pop(request, None)
        assert len(self._counts) == len(self._num_seen), (
            f"counts of {[*self._counts]}, seen tokens of {[*self._num_seen]}"
        )

    def _grow(self, request: int, tokens: Sequence[int]) -> dict[tuple[int, ...], Counter[int]]:
        seen = self._num_seen.get(request, 0)
        assert seen <= len(tokens), f"request {request}: {seen} tokens are counted, but it has only {len(tokens)}"
        counts = self._counts.setdefault(request, {})
        for end in range(seen, len(tokens)):
            for length in range(1, min(self._depth, end) + 1):
                counts.setdefault(tuple(tokens[end - length : end]), Counter())[tokens[end]] += 1
        self._num_seen[request] = len(tokens)
        return counts


class HostDrafts:
    """Draft tokens on the host for the next step: K per row of the last processed step.

    NO_DRAFT if there are fewer than K.
    """

    def __init__(self, spec: EngineSpec, functions: EngineFunctions) -> None:
        self._suffixes = SuffixDrafter(spec.num_speculative_tokens)
        self._spec = spec
        self._functions = functions
        self.columns: tuple[int, ...] = ()

    def propose(
        self, step: Step, delivered: Sequence[Sequence[int]], on_device: Sequence[Sequence[int]] | None
    ) -> Sequence[tuple[int, ...]] | None:
        """Return the draft tokens of each row of a processed step; None for a device drafter.

        `on_device` are the draft tokens copied from the device, if the drafter runs there.
        """
        if not TRAITS[self._spec.drafter].goes_through_host:
            return None
        on_device = on_device if on_device is not None else ((),) * len(step.rows)
        rows = zip(step.rows, delivered, on_device, strict=False)
        proposed = tuple(self._of_row(row, tokens, step.k_step, there) for row, tokens, there in rows)
        assert len(proposed) == len(step.rows), (
            f"step {step.number}: drafts for {len(proposed)} of {len(step.rows)} rows"
        )
        self.columns = tuple(chain.from_iterable(map(self._pad, proposed)))
        return proposed

    @property
    def requests(self) -> Sequence[int]:
        """The requests for which a host drafter stores data."""
        return self._suffixes.requests

    def forget(self, request: Request) -> None:
        """Drop a host drafter's data of a request that stops running."""
        self._suffixes.forget(request.index)

    def _of_row(self, row: PlanRow, tokens: Sequence[int], k_step: int, on_device: Sequence[int]) -> tuple[int, ...]:
        request = row.request
        if not tokens or request.finish_reason is not None or row.scheduled.epoch != request.epoch:
            return ()
        known = self._functions.tokens_to_search(request)
        num_drafts = max(0, min(k_step, self._spec.max_model_len - len(known)))
        if self._spec.drafter == "ngram":
            on_device = ngram_drafts(known, num_drafts)
        elif self._spec.drafter == "suffix":
            on_device = self._suffixes.propose(request.index, known, num_drafts)
        return self._pad(tuple(on_device), num_drafts)

    def _pad(self, drafts: tuple[int, ...], count: int | None = None) -> tuple[int, ...]:
        """Return draft tokens padded with NO_DRAFT to `count` (default K)."""
        count = self._spec.num_speculative_tokens if count is None else count
        return drafts[:count] + (NO_DRAFT,) * (count - len(drafts))


class DraftsToHost:
    """Copies a step's draft tokens to pinned host memory, for grammars or host drafters.

    A step enqueues nothing if the host does not need its draft tokens.
    """

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        self._machine = machine
        spec = context.spec
        self._is_read_back = TRAITS[spec.drafter].is_read_back
        size, slots = context.memory.rows_max * spec.num_speculative_tokens, range(ring_size("staging", spec))
        self._drafts = [machine.buffer(f"drafts[{slot}]", device_array(size), pinned=True) for slot in slots]
        self._drafts_done = [machine.event("drafts_done") for _ in slots]

    def launch(self, forward: Forward) -> DraftsInFlight | None:
        """Enqueue the copy of a step's draft tokens, if the host needs them."""
        context, k = self._context, self._context.spec.num_speculative_tokens
        is_read = forward.named.grammar or self._is_read_back
        if not is_read or not k:
            return None
        slot = forward.step % len(self._drafts)
        drafts = self._drafts[slot].span(0, forward.view.num_rows * k)
        context.compute.launch(
            context.functions.copy_drafts, context.arguments(CopyDrafts, forward.view.draft_tokens, drafts)
        )
        self._drafts_done[slot].record(context.compute)
        return DraftsInFlight(self._drafts_done[slot], drafts)

    def read(self, in_flight: DraftsInFlight, step: int) -> Sequence[Sequence[int]]:
        """Wait for a step's draft tokens to arrive on the host; return them by row."""
        in_flight.landed.synchronize()
        with self._machine.host(in_flight.drafts, "r", step) as landed:
            drafts, k = tuple(landed.data), self._context.spec.num_speculative_tokens
        return tuple(drafts[first : first + k] for first in range(0, len(drafts), k))
