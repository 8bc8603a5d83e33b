"""Check the inputs and the KV cache of a drafter's model in each draft pass.

Verifies:
- first pass of a step: the input ids are the request's known tokens up to the one just sampled, each at its own
  position or at the position before;
- every later pass: the input id is the last proposed draft token, one position further;
- a parallel drafter stores all computed positions, and receives the token just sampled and one mask token per draft;
- slot mapping and sequence lengths follow from positions and planned blocks; the host's bounds are upper bounds;
- no row, not even a padding row, writes into a block that its request does not hold;
- every KV cache entry that a request attends to was written for that position and token, by the request itself unless
  it is part of a prefix-cache hit or was loaded from a store;
- the draft tokens that the target verifies next are the proposed ones;
- the drafter runs in every step, unless a request of the step is close to `max_model_len`, or a parallel drafter
  stores its entries, proposes nothing, and no request has drafts in the next step.

Does not verify:
- hidden states and draft logits (`drafter_states` does);
- rows of rejected drafts and positions after `max_model_len`, except that their writes stay in the request's blocks;
- drafts proposed after a prefill chunk: the target never verifies them;
- tokens of a stay while results of the stay before may still arrive.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from scenarios.events import DisturbTransfer
from scenarios.spec import ENGINE
from workers.judge.history import Blocks, History, Step
from workers.judge.history import Row as InputRow
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.record.engine_records import Drafting, Inputs, Transfer
from workers.record.evidence import Difference, Fact, fact

PLANE = "drafts"
PLANES = (PLANE,)


class Entry(NamedTuple):
    """An entry of the drafter's KV cache: the request that wrote it, its position and its token.

    The token is None if a step without a draft pass has left the entry unwritten.
    """

    request: int
    position: int
    token: int | None


@dataclass(slots=True, eq=False)
class _CacheState:
    """The drafter's KV cache for one running period of a request (start or resume, to end).

    - `hit`: the number of tokens whose entries other requests may have computed.
    - `follows_from_tokens`: false if entries may not follow from the tokens alone: after a prefix-cache hit, a step
      without a draft pass, or the end of a prefill chunk.
    - `changed`: the first position whose token differs from the stay before, or None.
    """

    hit: int
    follows_from_tokens: bool
    changed: int | None = None


class Row(NamedTuple):
    """A request in one step, with the tokens, positions and blocks that its drafter must use.

    - `first`: the position of its first scheduled token; `end`: the number of computed tokens, without rejected drafts.
    - `tokens`: the tokens known after the step, then the proposed drafts.
    - `samples`: false for a prefill chunk, whose drafts are never verified, and for a row whose result is dropped.
    - `is_chunk`: whether a row neither samples nor has drafts.
    - `is_checked`: whether the row is checked; its tokens are not known otherwise.
    """

    request: int
    first: int
    num_scheduled: int
    end: int
    tokens: Sequence[int]
    blocks: Blocks
    samples: bool
    is_chunk: bool
    is_checked: bool


class RowInputs(NamedTuple):
    """Input ids, positions and slot mapping of a batch row in a draft pass."""

    input_ids: Sequence[int]
    positions: Sequence[int]
    slots: Sequence[int]


class Proposal(NamedTuple):
    """Draft tokens of one step, with the tokens `known` that they continue.

    `margins` has the logit difference of each draft to the second-best token. Drafts proposed `at_once`, in one pass,
    may depend on their number, because each position attends to all others.
    """

    step: int
    tokens: tuple[int, ...]
    drafts: tuple[int, ...]
    margins: tuple[float, ...]
    at_once: bool


# Proposals of a run, by request and number of known tokens.
Proposals: TypeAlias = Mapping[tuple[int, int], Proposal]


class DrafterInputs(HistoryJudge):
    """Judge that checks the drafter's inputs and KV cache in each draft pass."""

    @classmethod
    def of(cls, case: Case) -> "DrafterInputs | None":
        """Return the judge; None if the run does not report all KV entries of the drafter.

        A producer does not show the drafter entries that it hands over. A step that loses a synchronously loaded block
        does not show what is computed after the block.
        """
        spec, events = case.trace.spec, case.trace.events
        loses_in_steps = (
            spec.transfer is not None
            and spec.transfer.loads == "synchronous"
            and any(isinstance(event, DisturbTransfer) and event.how in ("drop", "fail") for event in events)
        )
        return cls() if case.shows_steps and spec.handoff is None and not loses_in_steps else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if any(step.passes for step in history.steps_of(ENGINE).values()) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        if self.compared(end.history):
            yield from Drafter(end.history).differences()


def proposals_of(history: History) -> Proposals:
    """Return the drafts that depend on tokens only, until the drafter's first difference."""
    if ENGINE not in history.engines:
        return {}
    drafter = Drafter(history)
    if DrafterInputs().compared(history):
        next(drafter.differences(), None)
    return drafter.proposals


class Drafter:
    """The drafter of one engine, checked step by step.

    `proposals` has the proposals of the checked steps that follow from tokens alone.
    """

    def __init__(self, history: History) -> None:
        own = history.engines[ENGINE]
        self._sizes, self._steps = own.sizes, own.steps
        self._states: dict[int, _CacheState] = {}
        self.proposals: dict[tuple[int, int], Proposal] = {}
        # Differences to report after all others: the last entry of a block of a prefix-cache hit, or the entry of a
        # token that changed since the stay before.
        self._reported_last: list[Difference] = []
        # The drafter's KV cache by slot, and the copies of its entries in a store.
        self._cache: dict[int, Entry] = {}
        self._store: dict[int, Entry] = {}
        # By step, the entries that a late draft pass writes after it.
        self._late_writes: dict[int, dict[int, Entry]] = {}
        self._copies = _copies_of(history)

    def differences(self) -> Iterator[Difference]:
        """Yield the differences of all steps."""
        for number, step in self._steps.items():
            self._copy(number, is_before=True)
            yield from self._step(step)
            self._cache |= self._late_writes.pop(number, {})
            self._copy(number, is_before=False)
        yield from self._reported_last

    def _copy(self, number: int, is_before: bool) -> None:
        """Copy blocks between the models of the drafter's KV cache and the store."""
        size = self._sizes.block_size
        for record in self._copies.get((number, is_before), ()):
            is_load = record.values.of == "load"
            source, target = (self._store, self._cache) if is_load else (self._cache, self._store)
            for index, pair in enumerate(zip(record.values.slots, record.values.blocks, strict=True)):
                at, to = pair if is_load else reversed(pair)
                for place in range(size) if index not in record.values.lost else ():
                    target.pop(to * size + place, None)
                    if at * size + place in source:
                        target[to * size + place] = source[at * size + place]

    def _step(self, step: Step) -> Iterator[Difference]:
        self._begin(step)
        if step.inputs is None:
            return
        if step.plan.follows:
            yield from self._verified(step)
        rows = {row.request: row_of(step, row) for row in step.rows}
        yield from self._missing_passes(step, rows)
        if step.context is not None:
            yield from self._stores(step, step.inputs, rows)
        for record in step.passes:
            yield from self._pass(step.number, record, rows)
        if not step.passes and step.context is None:
            self._mark_unwritten(rows.values())
        self._keep_proposals(step, rows)

    def _begin(self, step: Step) -> None:
        for request, tokens in step.plan.begun:
            stay = step.turns[request].stay
            self._states[request] = _CacheState(stay.hit, follows_from_tokens=not stay.hit)
            if stay.before is not None:
                pairs = enumerate(zip(stay.before, tokens, strict=False))
                self._states[request].changed = next((at for at, (was, now) in pairs if was != now), None)
        for request, count in step.plan.shared:
            self._states[request].hit = max(self._states[request].hit, count)

    def _verified(self, step: Step) -> Iterator[Difference]:
        """Yield a difference for each verified draft token that the step before did not propose."""
        for row in step.rows:
            turn, before = step.turns[row.request], self._steps.get(step.number - 1)
            if before is None or turn.last != before.number or not turn.stay.tokens_are_known:
                continue
            given = slice(max(0, len(row.positions) - row.num_drafts), None)
            proposed = before.proposed.get(row.request, ())
            for token, position, draft in zip(row.input_ids[given], row.positions[given], proposed, strict=False):
                if token != draft:
                    yield mismatch(PLANE, "verified", row.request, (step.number, position), draft, token)

    def _missing_passes(self, step: Step, rows: Mapping[int, Row]) -> Iterator[Difference]:
        """Yield a difference if a step that must propose draft tokens had no draft pass.

        A request close to `max_model_len` is a valid reason for such a step.
        """
        longest = max(computed + rows[request].num_scheduled for request, computed in step.computed.items())
        # The engine reserves positions for the maximum number of drafts, also if the step asks for fewer.
        is_near = longest + self._sizes.drafts_max + 1 > self._length_max
        if not step.passes and not is_near and not self._proposes_none(step):
            expected, actual = fact("inputs_of_every_step"), fact("none_shown")
            yield mismatch(PLANE, "passes", None, (step.number, None), expected, actual)

    @property
    def _length_max(self) -> int:
        assert self._sizes.max_model_len is not None, "an engine with a drafter reports its max_model_len"
        return self._sizes.max_model_len

    def _proposes_none(self, step: Step) -> bool:
        """Return whether a step proposes no draft token, and the next step verifies none."""
        following = self._steps.get(step.number + 1)
        drafts = {row.request: row.num_drafts for row in following.rows} if following is not None else {}
        is_asked = any(drafts.get(request) for request in step.requests)
        return step.context is not None and not any(step.proposed.values()) and not is_asked

    def _mark_unwritten(self, rows: Iterable[Row]) -> None:
        """Mark the KV entries of a step without a draft pass as unwritten: no later pass fills them."""
        for row in rows:
            self._states[row.request].follows_from_tokens = False
            for position in range(row.first, row.end):
                slot = self._slot(row, position)
                if isinstance(slot, int):
                    self._cache[slot] = Entry(row.request, position, None)

    def _keep_proposals(self, step: Step, rows: Mapping[int, Row]) -> None:
        """Keep drafts that depend on the request's tokens only, to compare them across runs."""
        for place, request in enumerate(step.passes[0].requests if step.passes else ()):
            row, state, drafts = rows[request], self._states[request], step.proposed.get(request, ())
            if not self._sizes.chunk_ends_known and self._sizes.draft_shift and not row.samples:
                state.follows_from_tokens = False
            if not (row.is_checked and row.samples and state.follows_from_tokens and drafts):
                continue
            count, at_once = len(drafts), self._sizes.mask_token is not None
            one_each = [margins[place] for margins in step.margins[:count]]
            of_all = step.margins[0][place * count : (place + 1) * count] if step.margins else []
            known = tuple(row.tokens[: len(row.tokens) - count])
            proposal = Proposal(step.number, known, tuple(drafts), tuple(of_all if at_once else one_each), at_once)
            self.proposals[request, len(known)] = proposal

    def _stores(self, step: Step, inputs: Inputs, rows: Mapping[int, Row]) -> Iterator[Difference]:
        """Yield wrong positions and slots at which a parallel drafter stores hidden states."""
        assert step.context is not None, "the caller has checked it"
        context, starts = step.context.values, inputs.values.starts
        for request, start, stop in zip(inputs.requests, starts, starts[1:], strict=False):
            row = rows[request]
            tokens = [*row.tokens[row.first : row.end], *[-1] * (stop - start)][: stop - start]
            given = RowInputs(tokens, context.positions[start:stop], context.slots[start:stop])
            if row.is_checked:
                yield from self._positions_and_slots(step.number, row, row.first, row.end - row.first, given)
            yield from self._writes(step.number, row, given, self._cache)

    def _pass(self, number: int, record: Drafting, rows: Mapping[int, Row]) -> Iterator[Difference]:
        values = record.values
        held = dict(values.blocks)
        written = self._late_writes.setdefault(values.behind, {}) if values.behind > number else self._cache
        starts = zip(record.requests, values.starts, values.starts[1:], strict=False)
        for place, (request, start, stop) in enumerate(starts):
            row, length = rows[request], values.seq_lens[place]
            if request in held:
                row = row._replace(blocks=held[request])
                yield from self._tables(number, row, values.tables[place])
            given = RowInputs(values.input_ids[start:stop], values.positions[start:stop], values.slots[start:stop])
            if row.is_checked:
                yield from self._row_inputs(number, row, values.index, given, length)
            for bound in values.bounds[place : place + 1]:
                if bound < length:
                    expected = fact("at_least", least=length)
                    yield mismatch(PLANE, "draft_bounds", row.request, (number, None), expected, bound)
            yield from self._writes(number, row, given, written)
        for request in record.requests if values.index == 0 else ():
            if rows[request].is_checked:
                yield from self._reads(number, rows[request])

    def _row_inputs(self, number: int, row: Row, index: int, given: RowInputs, length: int) -> Iterator[Difference]:
        """Yield wrong input ids, positions, slots and sequence length of a row in a draft pass."""
        mask, shift = self._sizes.mask_token, self._sizes.draft_shift
        if mask is not None:
            first, last = row.end, row.end + len(given.positions) - 1
        else:
            # Without a shift, the position after a prefill chunk is computed again by the next chunk: not checked.
            first, last = row.first if index == 0 else row.end - shift + index, self._last_position(row) + index
        count = min(last, self._length_max - 1) + 1 - first
        yield from self._positions_and_slots(number, row, first, count, given)
        has_known_ids = row.samples or (index == 0 and mask is None)
        for position, token in zip(range(first, first + count), given.input_ids, strict=False):
            own = mask if mask is not None and position > row.end else self._token(row, position)
            if has_known_ids and own is not None and token != own:
                yield mismatch(PLANE, "draft_input_ids", row.request, (number, position), own, token)
        covered = min(first + len(given.positions), self._length_max)
        if count > 0 and length != covered:
            yield mismatch(PLANE, "draft_seq_lens", row.request, (number, None), covered, length)

    def _tables(self, number: int, row: Row, table: Blocks) -> Iterator[Difference]:
        """Yield a difference for each block of a later pass's block table that is not the request's."""
        for position, own, block in zip(itertools.count(step=self._sizes.block_size), row.blocks, table, strict=False):
            if own != block:
                facts = fact("block", block=own), fact("block", block=block)
                yield mismatch(PLANE, "draft_tables", row.request, (number, position), *facts)

    def _positions_and_slots(
        self, number: int, row: Row, first: int, count: int, given: RowInputs
    ) -> Iterator[Difference]:
        """Yield positions not consecutive from `first`, and slots outside the scheduled blocks."""
        for place, position in enumerate(range(first, first + count)):
            where, slot = (number, position), given.slots[place]
            if given.positions[place] != position:
                yield mismatch(PLANE, "draft_positions", row.request, where, position, given.positions[place])
            if slot != (own := self._slot(row, position)):
                yield mismatch(PLANE, "draft_slots", row.request, where, own, slot)

    def _last_position(self, row: Row) -> int:
        """Return the last position of a row in the first draft pass.

        That is the position of the token just sampled, or one before it.
        """
        return row.end - self._sizes.draft_shift if row.samples else row.end - 1

    def _token(self, row: Row, position: int) -> int | None:
        """Return the input id that a row must have at a position; None if it is unknown."""
        if self._is_chunk_end(row, position):
            return row.tokens[-1]
        at = position + self._sizes.draft_shift
        return row.tokens[at] if at < len(row.tokens) else None

    def _is_chunk_end(self, row: Row, position: int) -> bool:
        """Return whether the sampled token replaces the next prompt token at a chunk's end."""
        is_end = position == row.end - 1 and self._sizes.draft_shift > 0 and row.is_chunk
        return is_end and row.end < len(row.tokens) and not self._sizes.chunk_ends_known

    def _slot(self, row: Row, position: int) -> int | Fact:
        block, within = divmod(position, self._sizes.block_size)
        if block >= len(row.blocks):
            return fact("own_block", index=block)
        return row.blocks[block] * self._sizes.block_size + within

    def _writes(self, number: int, row: Row, given: RowInputs, written: dict[int, Entry]) -> Iterator[Difference]:
        """Add a row's written KV entries to `written`; yield slots in other requests' blocks."""
        for token, position, slot in zip(*given, strict=True):
            if slot < 0:
                continue
            block = slot // self._sizes.block_size
            if block not in row.blocks:
                expected, where = fact("a_block_of_its_own"), (number, position)
                yield mismatch(PLANE, "draft_slots", row.request, where, expected, fact("block", block=block))
            # The input id at the end of a chunk replaces the next prompt token; the entry counts as the next token's.
            meant = row.tokens[position + self._sizes.draft_shift] if self._is_chunk_end(row, position) else token
            written[slot] = Entry(row.request, position, meant)

    def _reads(self, number: int, row: Row) -> Iterator[Difference]:
        """Yield the attended KV entries of the first pass with another token or request."""
        state, shift = self._states[row.request], self._sizes.draft_shift
        last = min(self._last_position(row), self._length_max - 1, len(row.tokens) - 1 - shift)
        for position in range(last + 1):
            slot, token = self._slot(row, position), row.tokens[position + shift]
            entry = self._cache.get(slot) if isinstance(slot, int) else None
            is_position = entry is not None and entry.position == position
            actual = fact("no_entry")
            if entry is not None:
                is_reached = entry.request == row.request or position < state.hit
                if is_position and entry.token in (token, None) and is_reached:
                    continue
                actual = fact("entry_of", token=entry.token, position=entry.position, request=entry.request)
            expected = fact("entry_of", token=token, position=position, request=row.request)
            found = mismatch(PLANE, "draft_cache", row.request, (number, position), expected, actual)
            is_end_of_hit = shift > 0 and (position + 1) % self._sizes.block_size == 0 and position < state.hit
            # A session may have replaced the token of this position.
            if position + shift == state.changed or (is_end_of_hit and is_position):
                self._reported_last.append(found)
            else:
                yield found


def row_of(step: Step, row: InputRow) -> Row:
    """Return the tokens, positions and blocks that the drafter must use for a batch row."""
    turn, sampled = step.turns[row.request], step.sampled.get(row.request, ())
    end = row.first + len(row.positions) - (row.num_drafts + 1 - len(sampled) if row.num_drafts else 0)
    tokens, samples = [*turn.known, *sampled], bool(sampled)
    return Row(
        request=row.request,
        first=row.first,
        num_scheduled=len(row.positions),
        end=end,
        tokens=tokens + list(step.proposed.get(row.request, ())) if samples else tokens,
        blocks=dict(step.plan.blocks).get(row.request, []),
        samples=samples,
        is_chunk=not samples and not row.num_drafts,
        is_checked=turn.stay.tokens_are_known and (samples or not row.num_drafts),
    )


def _copies_of(history: History) -> dict[tuple[int, bool], list[Transfer]]:
    """Return block copies to and from the store, by (step, before or after its passes)."""
    copies: dict[tuple[int, bool], list[Transfer]] = {}
    with_inputs: set[int] = set()
    for record in history.records:
        if record.of != ENGINE:
            continue
        if isinstance(record, Inputs):
            with_inputs.add(record.step)
        elif isinstance(record, Transfer) and record.values.phase == "copies":
            is_awaited = record.values.of == "load" and record.values.is_synchronous
            is_before = is_awaited or record.step < 0 or record.step not in with_inputs
            copies.setdefault((record.step, is_before), []).append(record)
    return copies
