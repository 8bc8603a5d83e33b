"""Check that prefix-cache lookups hit every block that is registered and still cached.

Verifies:
- a request that begins reuses all blocks of its tokens that were registered in earlier steps and not taken since: of
  prompts, and with full attention of output tokens that the scheduler knew when it planned a step with the block;
- with full attention, these are all blocks up to the end of the hit; with sliding-window layers, only the blocks just
  before the position where the request continues;
- with a drafter that drops the last block of a hit, one more block after that position is required;
- a sliding-window group keeps enough blocks of a prompt for a request with the same prompt, or with a longer prompt
  that begins with it.

Does not verify:
- the content of a hit (`window_groups` and `kv_content` do);
- blocks of output tokens in sliding-window groups, or that end with a token in flight: these may be registered late;
- blocks registered in the same step;
- requests that may not read the prefix cache;
- in a sliding-window group, prompts that only share a part of their prefix.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from scenarios.spec import ENGINE
from workers.judge.history import History, Step, Turn
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.judge.prefixes import Prefixes
from workers.judge.window_groups import Group, groups_of
from workers.record.engine_records import Controlled, OpenedValues, Scheduled
from workers.record.evidence import Difference, fact

PLANES = ("blocks",)


class PrefixHits(HistoryJudge):
    """Judge that checks prefix-cache hits; with `drafts`, a hit may drop its last block."""

    def __init__(self, drafts: bool) -> None:
        self._drafts = drafts

    @classmethod
    def of(cls, case: Case) -> "PrefixHits | None":
        """Return the judge; None without prefix cache, and with recurrent states or a connector."""
        spec = case.trace.spec
        is_cached = spec.prefix_cache and spec.layers in ("attention", "windows", "experts") and not spec.has_connector
        return cls(spec.num_speculative_tokens > 0) if is_cached and case.shows_plans else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if any(step.begun for step in history.steps_of(ENGINE).values()) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        own = end.history.engines[ENGINE]
        cache = _Cache(own.sizes, self._drafts)
        for record in end.history.records:
            if isinstance(record, Controlled) and record.of == ENGINE and record.values.what == "cleared":
                cache.clear()
            elif isinstance(record, Scheduled) and record.of == ENGINE:
                yield from cache.planned(own.steps[record.step], own.steps)


class _Cache:
    """Model of the prefix cache: the registered blocks, by KV-cache group and by prefix."""

    def __init__(self, sizes: OpenedValues, drafts: bool) -> None:
        self._prefixes, self._groups = Prefixes(), groups_of(sizes)
        # A hit ends at a block boundary of every group.
        self._step = lcm(*(group.size for group in self._groups))
        # The number of tokens after a block that its hash also covers; if not 0, no block is dropped for the drafter.
        self._ahead = sizes.hash_ahead
        # Whether the last block of a hit is dropped for the drafter; it also decides which window blocks are kept.
        self._drops = drafts and (not sizes.windows or sizes.draft_shift > 0) and not self._ahead
        # By request, the prefixes of the tokens known when it began, and the length of its prompt.
        self._known: dict[int, list[int]] = {}
        self._prompts: dict[int, int] = {}
        self._registered: dict[tuple[int, int], set[int]] = {}
        self._entry_of: dict[int, tuple[int, int]] = {}

    def clear(self) -> None:
        """Forget all registered blocks (the engine reset its prefix cache)."""
        self._registered.clear()
        self._entry_of.clear()

    def planned(self, step: Step, steps: Mapping[int, Step]) -> Iterator[Difference]:
        """Yield a difference for each starting request with a shorter hit than is cached."""
        taken, num_gone, hits = step.plan.taken, 0, step.computed
        for request, tokens in step.plan.begun:
            self._known[request] = self._prefixes.extended([], tokens)
            self._prompts.setdefault(request, len(tokens))
        for request, count in sorted(step.plan.lookups, key=lambda pair: pair[1]):
            for block in taken[num_gone:count]:
                self._forget(block)
            num_gone = count
            least = self._least(self._known[request])
            if hits[request] < least:
                where = step.number, hits[request]
                yield mismatch("blocks", "hits", request, where, fact("at_least", least=least), hits[request])
        for block in taken[num_gone:]:
            self._forget(block)
        for request in step.requests:
            self._extend(step.turns[request], step.num_processed, steps)
        self._register(step)

    def _extend(self, turn: Turn, num_processed: int, steps: Mapping[int, Step]) -> None:
        """Add the output tokens that the scheduler knew when it planned a request's step."""
        request, is_certain = turn.stay.request, turn.stay.tokens_are_known
        while turn.last >= num_processed:
            turn = steps[turn.last].turns[request]
        if is_certain and not turn.has_lost:
            known = self._known[request]
            self._known[request] = self._prefixes.extended(known, turn.known[len(known) :])

    def _forget(self, block: int) -> None:
        entry = self._entry_of.pop(block, None)
        if entry is not None:
            self._registered[entry].discard(block)

    def _needed(self, group: Group, length: int) -> range:
        """Return the block indexes that a KV-cache group needs for a hit of `length` tokens."""
        stop = length // group.size
        first = 0 if group.window is None else max(0, stop + (1 - group.window) // group.size)
        return range(first, stop + self._drops)

    def _kept(self, group: Group, prompt: int) -> set[int] | None:
        """Return the prompt blocks (indexes) that a group must keep cached; None for all."""
        if group.window is None:
            return None
        step = self._step
        lengths = (prompt - 1, prompt) if self._drops else (prompt - 1,)
        ends = (max(0, length // step - self._drops) * step for length in lengths)
        return {index for end in ends for index in self._needed(group, end)}

    def _least(self, known: Sequence[int]) -> int:
        """Return the minimum number of tokens of a request's prefix-cache hit."""
        step = self._step
        lengths = range((len(known) - 1) // step * step, 0, -step)
        return next((length for length in lengths if self._is_cached(known, length)), 0)

    def _is_cached(self, known: Sequence[int], length: int) -> bool:
        """Return whether every group has the blocks that it needs for a hit of `length` tokens."""
        for number, group in enumerate(self._groups):
            needed = self._needed(group, length)
            if group.window is not None and self._drops and group.size < self._step and length < group.window:
                # Dropping a short block also drops the blocks up to the next boundary of the longer ones.
                return False
            # At least one token is left to compute, and all tokens that the last hash covers are known.
            if needed.stop * group.size + max(1, self._ahead) > len(known):
                return False
            if not all(self._registered.get((number, self._hashed(known, group, index))) for index in needed):
                return False
        return True

    def _hashed(self, known: Sequence[int], group: Group, index: int) -> int:
        """Return the id of the token prefix whose hash identifies block `index`."""
        return known[(index + 1) * group.size - 1 + self._ahead]

    def _register(self, step: Step) -> None:
        """Register the blocks that a step fills with tokens that the scheduler knew."""
        windows, blocks = dict(step.plan.windows), dict(step.plan.blocks)
        for request, computed in _computed_after(step):
            known = self._known[request]
            end = min(computed, len(known) - self._ahead)
            held_by_group = (blocks.get(request, []), *windows.get(request, ()))
            for number, (group, held) in enumerate(zip(self._groups, held_by_group, strict=False)):
                kept = self._kept(group, self._prompts[request])
                for index, block in enumerate(held[: end // group.size]):
                    if block and (kept is None or index in kept):
                        self._forget(block)
                        self._entry_of[block] = number, self._hashed(known, group, index)
                        self._registered.setdefault(self._entry_of[block], set()).add(block)


def _computed_after(step: Step) -> list[tuple[int, int]]:
    """Return each request of a step with the number of its tokens that are computed after it.

    Without model inputs, the scheduler's number may count draft tokens that are rejected, after all known tokens.
    """
    if step.inputs is not None:
        return [(row.request, row.first + len(row.positions)) for row in step.rows]
    counts = zip(step.requests, step.plan.num_tokens, strict=False)
    return [(request, step.computed[request] + count) for request, count in counts]
