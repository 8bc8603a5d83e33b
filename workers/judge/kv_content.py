"""KV-cache content: the entries that a request attends to, identified by the tokens that they were computed from.

The judge keeps caches of its own, in which an entry is the identity of a whole prefix. Steps write it by their slot
mapping; transfers copy it when their bytes are copied, whatever the engine believes. A zeroed block holds nothing until
it is written again, and so do entries that were computed after a lost block.

Verifies:
- each request attends to entries of exactly its own tokens at their positions: from its own earlier steps, from a
  prefix-cache hit, or from blocks loaded from a store or from a producer's cache (verified likewise);
- a store that shows which blocks of a request it keeps keeps those;
- a request that begins after computed tokens starts from recurrent states of exactly these tokens.

Does not verify: values; what a step itself writes (`model_inputs` does); which states a request starts from later; what
a request computes after a block that its step waited for and lost, until that block is computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scenarios.spec import ENGINE, PRODUCER, EngineName
from workers.judge.history import Blocks, EngineHistory, History, Row, Step
from workers.judge.judge import Case, End, HistoryJudge, named_for
from workers.judge.prefixes import UNWRITTEN, Prefixes
from workers.record.evidence import Difference
from workers.record.shown import Copied, Inputs, Processed, Shown, Stored, StoredValues, Transfer, Zeroed

PLANES = ("kv",)


@dataclass(frozen=True, slots=True)
class _Left:
    """A row in flight: its first position, its drafts, its prefixes, and its blocks for states by group."""

    first: int
    num_drafts: int
    prefixes: list[int]
    blocks: Sequence[Blocks]


class _Cache:
    """The cache of one engine, and the prefixes that its requests have computed.

    A block holds entries of tokens, or, in a group of layers with recurrent states, the state of a prefix.
    """

    def __init__(self, prefixes: Prefixes, history: EngineHistory | None) -> None:
        self._prefixes = prefixes
        self.blocks: dict[int, list[int]] = {}
        self.states: dict[int, int] = {}
        self._steps: Mapping[int, Step] = history.steps if history is not None else {}
        self.size = history.sizes.block_size if history is not None else 0
        self._state_sizes: Sequence[int] = history.sizes.state_sizes if history is not None else ()
        # The last step that filled or emptied each block: what an earlier step leaves there later does not count.
        self._changed: dict[int, int] = {}
        self._last_begun = -1
        # Blocks that a step waited for and that were lost, until they are computed.
        self.lost: set[int] = set()
        # Prefixes of each request, as far as it has computed them.
        self._known: dict[int, list[int]] = {}
        # Block copies before a step, as pairs of source and target.
        self._copies: dict[int, list[tuple[int, int]]] = {}
        # Rows of steps that have not been processed.
        self._rows: dict[int, dict[int, _Left]] = {}

    def copied(self, seen: Copied) -> None:
        self._copies.setdefault(seen.step, []).extend(seen.values.blocks)

    def zeroed(self, seen: Zeroed) -> None:
        for block in seen.values.blocks:
            self._changed[block] = seen.step
            self.blocks.pop(block, None)
            self.states.pop(block, None)

    def loaded(self, block: int, entries: list[int]) -> None:
        """Fill a block by a load, which comes after all steps that have begun."""
        self._changed[block] = self._last_begun + 1
        self.blocks[block] = entries

    def loaded_state(self, block: int, state: int) -> None:
        """Fill a block by the load of a state, likewise."""
        self._changed[block] = self._last_begun + 1
        self.states[block] = state

    def _copy(self, step: int, copies: Sequence[tuple[int, int]]) -> None:
        """Copy blocks in which a prefix-cache hit ends, whatever they hold."""
        for source, target in copies:
            self._changed[target] = step
            for held in (self.blocks, self.states):
                held.pop(target, None)
            if source in self.states:
                self.states[target] = self.states[source]
            else:
                self.blocks[target] = list(self.blocks.get(source, [UNWRITTEN] * self.size))

    def processed(self, seen: Processed) -> None:
        """Leave the states of the accepted drafts: those at block boundaries stay there."""
        rows = self._rows.pop(seen.step, {})
        for request, sampled in zip(seen.requests, seen.values.sampled, strict=True):
            if request in rows and rows[request].num_drafts and sampled:
                row = rows[request]
                self._leave(seen.step, row, len(row.prefixes) - row.num_drafts + len(sampled) - 1)

    def _leave(self, step: int, row: _Left, stop: int) -> None:
        """Leave the states of a row at block boundaries before a token, and the one of that token.

        The result may arrive after a later step has begun, for which the blocks of an ended request are another's.
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
        """Write what a step writes, and yield entries before it that are not the request's own."""
        step = self._steps[number]
        self._last_begun = number
        self._copy(number, self._copies.pop(number, ()))
        states = dict(step.plan.states)
        for request, tokens in step.plan.begun:
            # The tokens that a request finds computed are known.
            self._known[request] = self._prefixes.extended([], tokens[: step.computed[request]])
            yield from self._first_states(number, request, states.get(request, ()))
        self._write(number, step.rows)
        self._rows[number] = {}
        for row in step.rows:
            left = _Left(row.first, row.num_drafts, self._known[row.request], states.get(row.request, ()))
            self._rows[number][row.request] = left
            if left.blocks and not row.num_drafts:
                self._leave(number, left, len(left.prefixes))
        for row in step.rows:
            yield from self._attended(number, row)

    def _write(self, number: int, rows: Sequence[Row]) -> None:
        """Write all rows before any attends: the row of a lost block may come after one that shares it."""
        size = self.size
        self.lost.difference_update(slot // size for row in rows for slot in row.slots if slot % size == 0)
        for row in rows:
            known = self._known.get(row.request, [])[: row.first]
            self._known[row.request] = self._prefixes.extended(known, row.input_ids)
            written = self._known[row.request][len(known) :]
            if not self._is_whole(row):
                written = [UNWRITTEN] * len(written)
            for slot, prefix in zip(row.slots, written, strict=True):
                self._changed[slot // size] = number
                self.states.pop(slot // size, None)
                self.blocks.setdefault(slot // size, [UNWRITTEN] * size)[slot % size] = prefix

    def _first_states(self, step: int, request: int, blocks: Sequence[Blocks]) -> Iterator[Difference]:
        """Yield states that a request starts from when it begins, and that are not those of its own tokens."""
        known = self._known[request]
        for size, held in zip(self._state_sizes, blocks if known else (), strict=False):
            actual = self.states.get(held[(len(known) - 1) // size], UNWRITTEN)
            if actual != known[-1]:
                yield self._difference(step, request, len(known) - 1, known[-1], actual, variable="first_state")

    def _is_whole(self, row: Row) -> bool:
        """Return whether no block before a row's first position is lost."""
        return self.lost.isdisjoint(row.table[: -(-row.first // self.size)])

    def _attended(self, step: int, row: Row) -> Iterator[Difference]:
        """Yield the first entry before a row that is not of its request's own tokens."""
        size, known, first = self.size, self._known[row.request], row.first
        for index in range(-(-first // size) if self._is_whole(row) else 0):
            expected = known[index * size : min(first, (index + 1) * size)]
            actual = self.blocks.get(row.table[index], [UNWRITTEN] * size)[: len(expected)]
            pairs = enumerate(zip(expected, actual, strict=True), index * size)
            wrong = next(((position, own, other) for position, (own, other) in pairs if own != other), None)
            if wrong is not None:
                yield self._difference(step, row.request, *wrong)

    def stored(self, seen: Stored) -> Iterator[Difference]:
        """Yield entries of stored blocks that are not of their request's tokens."""
        values: StoredValues = seen.values
        prefixes, size = self._prefixes.extended([], values.tokens), self.size
        for block, index in zip(values.blocks, values.indexes, strict=True):
            actual = self.blocks.get(block, [UNWRITTEN] * size)
            for position, own in enumerate(prefixes[index * size : (index + 1) * size], index * size):
                if actual[position % size] != own:
                    wrong = position, own, actual[position % size]
                    yield self._difference(seen.step, seen.requests[0], *wrong, variable="stored")

    def _difference(
        self, step: int, request: int, position: int, own: int, other: int, variable: str = "attended"
    ) -> Difference:
        expected, actual = self._prefixes.told(own, other)
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
    """Judge of the caches and the store of a run, of all of its engines."""

    @classmethod
    def of(cls, case: Case) -> "KVContent | None":
        """Return the judge of a run with a connector or a prefix cache.

        Without either a request attends only to what it has written itself.
        """
        spec = case.trace.spec
        has_hits = spec.prefix_cache and spec.layers != "windows" and case.shows_steps
        return cls() if spec.has_connector or has_hits else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if history.shown else ()

    def differences(self, end: End) -> Iterator[Difference]:
        caches = _Caches(end.history)
        for seen in end.history.shown:
            for found in caches.see(seen):
                yield named_for(found, seen.of)


class _Caches:
    """The caches of all engines of a run, and the store beside them."""

    def __init__(self, history: History) -> None:
        prefixes = Prefixes()
        self._caches: dict[EngineName, _Cache] = {
            of: _Cache(prefixes, history.engines.get(of)) for of in (ENGINE, PRODUCER)
        }
        self._store: dict[int, list[int]] = {}
        self._stored_states: dict[int, int] = {}
        if any(seen.of == PRODUCER for seen in history.shown):
            # Loads are from the producer's cache.
            self._store, self._stored_states = self._caches[PRODUCER].blocks, self._caches[PRODUCER].states
        # A step's kernels wait for its synchronous loads, whenever its inputs were observed.
        self._awaited: dict[int, list[Transfer]] = {}
        for seen in history.shown:
            if isinstance(seen, Transfer) and _is_awaited(seen):
                self._awaited.setdefault(seen.step, []).append(seen)

    def see(self, seen: Shown) -> Iterator[Difference]:
        """Yield what is wrong with something that was shown."""
        cache = self._caches[seen.of]
        match seen:
            case Copied():
                cache.copied(seen)
            case Zeroed():
                cache.zeroed(seen)
            case Processed():
                cache.processed(seen)
            case Transfer() if seen.values.phase == "copies" and not _is_awaited(seen):
                self._copy(seen)
            case Stored():
                yield from cache.stored(seen)
            case Inputs():
                for load in self._awaited.get(seen.step, ()):
                    self._copy(load)
                yield from cache.step(seen.step)
            case _:
                pass

    def _copy(self, seen: Transfer) -> None:
        """Copy blocks between the cache and the store, except the lost ones."""
        values, cache = seen.values, self._caches[ENGINE]
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


def _is_awaited(seen: Transfer) -> bool:
    """Return whether a step waits for the copies of a load."""
    values = seen.values
    return values.phase == "copies" and values.of == "load" and values.is_synchronous
