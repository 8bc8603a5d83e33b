"""Check that each KV cache entry a request attends to was computed from its own tokens.

The judge keeps model KV caches in which an entry is the identity of a whole prefix of tokens. Steps write entries by
their slot mapping; transfers copy entries at the time when their bytes are copied. A zeroed block is unwritten until a
step writes it again. Entries computed after a lost block count as unwritten.

Verifies:
- each KV cache entry before a batch row was computed from exactly the request's tokens up to its position: in earlier
  steps, by a prefix-cache hit, or loaded from a store or from a producer's KV cache;
- the blocks that a store is reported to keep for a request hold entries of the request's tokens;
- a request that begins after computed tokens starts from the recurrent state of exactly these tokens.

Does not verify:
- values of entries and states;
- the slots that a step writes (`model_inputs` does);
- the recurrent states that a request uses in its later steps;
- rows after a lost block of a synchronous load, until a step computes that block.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scenarios.spec import ENGINE, PRODUCER, EngineName
from workers.judge.history import Blocks, EngineHistory, History, Row, Step
from workers.judge.judge import Case, End, HistoryJudge, with_engine_name
from workers.judge.prefixes import UNWRITTEN, Prefixes
from workers.record.engine_records import (
    Copied,
    EngineRecord,
    Inputs,
    Processed,
    Stored,
    StoredValues,
    Transfer,
    Zeroed,
)
from workers.record.evidence import Difference

PLANES = ("kv",)


@dataclass(frozen=True, slots=True)
class _RowInFlight:
    """A batch row of a step in flight: first position, drafts, prefix ids, state blocks."""

    first: int
    num_drafts: int
    prefixes: list[int]
    blocks: Sequence[Blocks]


class _Cache:
    """Model of an engine's KV cache: for each entry, the id of the token prefix it encodes.

    A block holds KV cache entries or, in a group of layers with recurrent states, the state after a prefix.
    """

    def __init__(self, prefixes: Prefixes, history: EngineHistory | None) -> None:
        self._prefixes = prefixes
        self.blocks: dict[int, list[int]] = {}
        self.states: dict[int, int] = {}
        self._steps: Mapping[int, Step] = history.steps if history is not None else {}
        self.size = history.sizes.block_size if history is not None else 0
        self._state_sizes: Sequence[int] = history.sizes.state_sizes if history is not None else ()
        # By block, the last step that wrote or cleared it: late results of an earlier step do not overwrite it.
        self._changed: dict[int, int] = {}
        self._last_begun = -1
        # Lost blocks of synchronous loads, until a step computes them.
        self.lost: set[int] = set()
        # By request, the prefixes of its computed tokens.
        self._known: dict[int, list[int]] = {}
        # By step, the block copies before it, as pairs of source and target.
        self._copies: dict[int, list[tuple[int, int]]] = {}
        # By step and request, the rows of steps that have not been processed.
        self._rows: dict[int, dict[int, _RowInFlight]] = {}

    def copied(self, record: Copied) -> None:
        """Queue block copies, which take effect before the next step writes."""
        self._copies.setdefault(record.step, []).extend(record.values.blocks)

    def zeroed(self, record: Zeroed) -> None:
        """Mark the blocks that the engine zeroed as unwritten."""
        for block in record.values.blocks:
            self._changed[block] = record.step
            self.blocks.pop(block, None)
            self.states.pop(block, None)

    def loaded(self, block: int, entries: list[int]) -> None:
        """Fill a block with KV entries that a connector loaded after all begun steps."""
        self._changed[block] = self._last_begun + 1
        self.blocks[block] = entries

    def loaded_state(self, block: int, state: int) -> None:
        """Fill a block with a recurrent state that a connector loaded after all begun steps."""
        self._changed[block] = self._last_begun + 1
        self.states[block] = state

    def _copy(self, step: int, copies: Sequence[tuple[int, int]]) -> None:
        """Copy blocks when a prefix-cache hit ends inside them: KV entries or a recurrent state."""
        for source, target in copies:
            self._changed[target] = step
            for held in (self.blocks, self.states):
                held.pop(target, None)
            if source in self.states:
                self.states[target] = self.states[source]
            else:
                self.blocks[target] = list(self.blocks.get(source, [UNWRITTEN] * self.size))

    def processed(self, record: Processed) -> None:
        """Store the recurrent states after the accepted drafts of a processed step."""
        rows = self._rows.pop(record.step, {})
        for request, sampled in zip(record.requests, record.values.sampled, strict=True):
            if request in rows and rows[request].num_drafts and sampled:
                row = rows[request]
                self._write_states(record.step, row, len(row.prefixes) - row.num_drafts + len(sampled) - 1)

    def _write_states(self, step: int, row: _RowInFlight, stop: int) -> None:
        """Store a row's recurrent states at block ends before token `stop`, and at `stop`.

        The result may arrive after a later step has begun: a block that belongs to another request by then is skipped.
        """
        for size, held in zip(self._state_sizes, row.blocks, strict=True):
            ends = range(row.first // size * size + size, stop, size) if row.num_drafts else range(0)
            for end in (*ends, stop):
                block = held[(end - 1) // size]
                if self._changed.get(block, -1) <= step:
                    self._changed[block] = step
                    self.states[block] = row.prefixes[end - 1]
                    self.blocks.pop(block, None)

    def step(self, number: int) -> Iterator[Difference]:
        """Write a step's KV entries and states; yield wrong entries that its rows attend to."""
        step = self._steps[number]
        self._last_begun = number
        self._copy(number, self._copies.pop(number, ()))
        states = dict(step.plan.states)
        for request, tokens in step.plan.begun:
            # Already computed tokens count as the request's own: their entries are checked when it attends to them.
            self._known[request] = self._prefixes.extended([], tokens[: step.computed[request]])
            yield from self._first_states(number, request, states.get(request, ()))
        self._write(number, step.rows)
        self._rows[number] = {}
        for row in step.rows:
            row_in_flight = _RowInFlight(
                row.first, row.num_drafts, self._known[row.request], states.get(row.request, ())
            )
            self._rows[number][row.request] = row_in_flight
            if row_in_flight.blocks and not row.num_drafts:
                self._write_states(number, row_in_flight, len(row_in_flight.prefixes))
        for row in step.rows:
            yield from self._attended(number, row)

    def _write(self, number: int, rows: Sequence[Row]) -> None:
        """Note the tokens of the KV-cache entries that a step writes, for all its batch rows.

        All rows come before any check: the row that computes a lost block may follow one that shares it.
        """
        size = self.size
        self.lost.difference_update(slot // size for row in rows for slot in row.slots if slot % size == 0)
        for row in rows:
            known = self._known.get(row.request, [])[: row.first]
            self._known[row.request] = self._prefixes.extended(known, row.input_ids)
            written = self._known[row.request][len(known) :]
            if not self._has_no_lost_block(row):
                written = [UNWRITTEN] * len(written)
            for slot, prefix in zip(row.slots, written, strict=True):
                self._changed[slot // size] = number
                self.states.pop(slot // size, None)
                self.blocks.setdefault(slot // size, [UNWRITTEN] * size)[slot % size] = prefix

    def _first_states(self, step: int, request: int, blocks: Sequence[Blocks]) -> Iterator[Difference]:
        """Yield a difference if a row starts from a recurrent state of a different token prefix."""
        known = self._known[request]
        for size, held in zip(self._state_sizes, blocks if known else (), strict=False):
            actual = self.states.get(held[(len(known) - 1) // size], UNWRITTEN)
            if actual != known[-1]:
                yield self._difference(step, request, len(known) - 1, known[-1], actual, variable="first_state")

    def _has_no_lost_block(self, row: Row) -> bool:
        """Return whether all blocks with a row's earlier tokens were loaded."""
        return self.lost.isdisjoint(row.table[: -(-row.first // self.size)])

    def _attended(self, step: int, row: Row) -> Iterator[Difference]:
        """Yield the first wrong entry of each block with tokens before the row's first token."""
        size, known, first = self.size, self._known[row.request], row.first
        for index in range(-(-first // size) if self._has_no_lost_block(row) else 0):
            expected = known[index * size : min(first, (index + 1) * size)]
            actual = self.blocks.get(row.table[index], [UNWRITTEN] * size)[: len(expected)]
            pairs = enumerate(zip(expected, actual, strict=True), index * size)
            wrong = next(((position, own, other) for position, (own, other) in pairs if own != other), None)
            if wrong is not None:
                yield self._difference(step, row.request, *wrong)

    def stored(self, record: Stored) -> Iterator[Difference]:
        """Yield a difference for each stored block with entries of other tokens."""
        values: StoredValues = record.values
        prefixes, size = self._prefixes.extended([], values.tokens), self.size
        for block, index in zip(values.blocks, values.indexes, strict=True):
            actual = self.blocks.get(block, [UNWRITTEN] * size)
            for position, own in enumerate(prefixes[index * size : (index + 1) * size], index * size):
                if actual[position % size] != own:
                    wrong = position, own, actual[position % size]
                    yield self._difference(record.step, record.requests[0], *wrong, variable="stored")

    def _difference(
        self, step: int, request: int, position: int, own: int, other: int, variable: str = "attended"
    ) -> Difference:
        expected, actual = self._prefixes.facts_of(own, other)
        return Difference(
            plane="kv",
            variable=variable,
            request=f"submit {request}",
            step=step,
            position=position,
            expected=expected,
            actual=actual,
        )


class KVContent(HistoryJudge):
    """Judge of KV cache content: all engines of a run, and their KV store."""

    @classmethod
    def of(cls, case: Case) -> "KVContent | None":
        """Return the judge; None for a run without a KV connector and without a prefix cache.

        There a request attends only to entries that it has written itself.
        """
        spec = case.trace.spec
        has_hits = spec.prefix_cache and spec.layers != "windows" and case.shows_steps
        return cls() if spec.has_connector or has_hits else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if history.records else ()

    def differences(self, end: End) -> Iterator[Difference]:
        caches = _Caches(end.history)
        for record in end.history.records:
            for found in caches.check_record(record):
                yield with_engine_name(found, record.of)


class _Caches:
    """Models of the KV caches of all engines of a run, and of their KV store."""

    def __init__(self, history: History) -> None:
        prefixes = Prefixes()
        self._caches: dict[EngineName, _Cache] = {
            of: _Cache(prefixes, history.engines.get(of)) for of in (ENGINE, PRODUCER)
        }
        self._store: dict[int, list[int]] = {}
        self._stored_states: dict[int, int] = {}
        if any(record.of == PRODUCER for record in history.records):
            # The consumer loads from the producer's KV cache.
            self._store, self._stored_states = self._caches[PRODUCER].blocks, self._caches[PRODUCER].states
        # A step's kernels wait for its synchronous loads, so these come before the step at any order of the records.
        self._awaited: dict[int, list[Transfer]] = {}
        for record in history.records:
            if isinstance(record, Transfer) and _is_awaited(record):
                self._awaited.setdefault(record.step, []).append(record)

    def check_record(self, record: EngineRecord) -> Iterator[Difference]:
        """Process one engine record; yield the differences found in it."""
        cache = self._caches[record.of]
        match record:
            case Copied():
                cache.copied(record)
            case Zeroed():
                cache.zeroed(record)
            case Processed():
                cache.processed(record)
            case Transfer() if record.values.phase == "copies" and not _is_awaited(record):
                self._copy(record)
            case Stored():
                yield from cache.stored(record)
            case Inputs():
                for load in self._awaited.get(record.step, ()):
                    self._copy(load)
                yield from cache.step(record.step)
            case _:
                pass

    def _copy(self, record: Transfer) -> None:
        """Copy blocks between a KV cache and the store, except blocks that fail to load."""
        values, cache = record.values, self._caches[ENGINE]
        first_state = len(values.blocks) - values.num_states
        for index, (block, slot) in enumerate(zip(values.blocks, values.slots, strict=True)):
            if index in values.lost:
                if values.of == "load" and values.is_synchronous:
                    cache.lost.add(block)
            elif index >= first_state:
                self._copy_state(values.of, block, slot)
            elif values.of == "load":
                cache.loaded(block, list(self._store.get(slot, [UNWRITTEN] * cache.size)))
            else:
                self._store[slot] = list(cache.blocks.get(block, [UNWRITTEN] * cache.size))

    def _copy_state(self, of: str, block: int, slot: int) -> None:
        cache = self._caches[ENGINE]
        if of == "load":
            cache.loaded_state(block, self._stored_states.get(slot, UNWRITTEN))
        else:
            self._stored_states[slot] = cache.states.get(block, UNWRITTEN)


def _is_awaited(record: Transfer) -> bool:
    """Return whether the next step waits until this load is copied (a synchronous load)."""
    values = record.values
    return values.phase == "copies" and values.of == "load" and values.is_synchronous
