"""Attended tokens: what lies in a cache where a request attends to it, by the tokens that it was computed from.

The judge keeps a cache of its own in which an entry is the identity of a whole prefix. Steps write it where they say
that they write theirs, and transfers copy from it and to it when their bytes are copied, whatever the engine believes.
A block that is zeroed holds nothing until it is written again, and so does what is computed behind one that was lost.

Verifies: that behind whatever a request computes lie the entries of exactly its own tokens, at their positions: of its
own earlier steps, of a prefix that it takes over, or of blocks that it has loaded, from a store or the cache of a
producer, of which the same is verified; that a store which tells what it is to keep of a request keeps that; that a
request which begins behind computed tokens goes on from states behind exactly these.
Does not verify: values; what a step itself writes (`step_identities` does); from which states a request goes on later;
what a request computes behind a block that its step was to load and has lost, until that block is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.spec import ENGINE, PRODUCER, EngineName
from workers.judge.judge import End, Judge, told_of
from workers.judge.prefixes import UNWRITTEN, Prefixes
from workers.record.evidence import Difference
from workers.record.log import Entry
from workers.record.observation import Observation

PLANES = ("kv",)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a step: where it begins, how many drafts it has, its prefixes, and its blocks for states, by group."""

    first: int
    num_drafts: int
    prefixes: list[int]
    blocks: Sequence[list[int]]


class _Cache:
    """The cache of one engine, and what its requests have computed.

    A block holds entries of tokens, or, of a group of layers with states, the state behind a prefix.
    """

    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes
        self.blocks: dict[int, list[int]] = {}
        self.states: dict[int, int] = {}
        self.size = 0
        # Tokens behind which each group of layers with states goes on in its next block.
        self._state_sizes: Sequence[int] = ()
        # The last step that each block was filled in, or emptied: what an earlier one leaves there is gone by then.
        self._changed: dict[int, int] = {}
        # The last step that has begun.
        self._begun = -1
        # Blocks that a step waited for in vain, until they are computed.
        self.lost: set[int] = set()
        # Tokens and prefixes of each request, as far as it has computed them.
        self._known: dict[int, list[int]] = {}
        self._planned: dict[int, Observation] = {}
        # Blocks that are copied ahead of a step, each with the block that it is copied to.
        self._copies: dict[int, list[Sequence[int]]] = {}
        # Rows of steps that have not come back.
        self._rows: dict[int, dict[int, _Row]] = {}

    def opened(self, seen: Observation) -> None:
        self.size, self._state_sizes = seen.values["block_size"], seen.values["state_sizes"]

    def planned(self, seen: Observation) -> None:
        self._planned[seen.step] = seen

    def copied(self, seen: Observation) -> None:
        self._copies.setdefault(seen.step, []).extend(seen.values["blocks"])

    def zeroed(self, seen: Observation) -> None:
        for block in seen.values["blocks"]:
            self._changed[block] = seen.step
            self.blocks.pop(block, None)
            self.states.pop(block, None)

    def loaded(self, block: int, entries: list[int]) -> None:
        """Fill a block by a load, which is behind all steps that have begun."""
        self._changed[block] = self._begun + 1
        self.blocks[block] = entries

    def loaded_state(self, block: int, state: int) -> None:
        """Fill a block by the load of a state, likewise."""
        self._changed[block] = self._begun + 1
        self.states[block] = state

    def _copy(self, step: int, copies: Sequence[Sequence[int]]) -> None:
        """Copy blocks of which a hit ends inside, whatever they hold."""
        for source, target in copies:
            self._changed[target] = step
            for held in (self.blocks, self.states):
                held.pop(target, None)
            if source in self.states:
                self.states[target] = self.states[source]
            else:
                self.blocks[target] = list(self.blocks.get(source, [UNWRITTEN] * self.size))

    def processed(self, seen: Observation) -> None:
        """Leave the states behind the drafts that were kept: those at ends of blocks stay there."""
        rows = self._rows.pop(seen.step, {})
        for request, sampled in zip(seen.requests, seen.values["sampled"], strict=True):
            if request in rows and rows[request].num_drafts and sampled:
                row = rows[request]
                self._leave(seen.step, row, len(row.prefixes) - row.num_drafts + len(sampled) - 1)

    def _leave(self, step: int, row: _Row, stop: int) -> None:
        """Leave the states of a step's row at ends of blocks up to a token, and the one behind that.

        It may come back once a later step has begun, for which the blocks of a request that has ended are another's.
        """
        for size, held in zip(self._state_sizes, row.blocks, strict=True):
            ends = range(row.first // size * size + size, stop, size) if row.num_drafts else range(0)
            for end in (*ends, stop):
                block = held[(end - 1) // size]
                if self._changed.get(block, -1) <= step:
                    self._changed[block] = step
                    self.states[block] = row.prefixes[end - 1]
                    self.blocks.pop(block, None)

    def step(self, seen: Observation) -> Difference | None:
        """Write what a step writes, and compare what lies behind it."""
        planned, values, size = self._planned[seen.step], seen.values, self.size
        self._begun = seen.step
        self._copy(seen.step, self._copies.pop(seen.step, ()))
        # What a request that begins need not compute is known.
        done = dict(zip(planned.requests, planned.values["scheduled_computed"], strict=True))
        states = dict(planned.values["states"])
        for request, tokens in planned.values["begun"]:
            self._known[request] = self._prefixes.extended([], tokens[: done[request]])
            found = self._first_states(seen.step, request, states.get(request, ()))
            if found is not None:
                return found
        rows = list(zip(seen.requests, values["starts"], values["starts"][1:], values["tables"], strict=False))
        # All rows are written before any attends: the row of a lost block may stand behind one that shares it.
        slots = values["slots"][: values["starts"][-1]]
        self.lost.difference_update(slot // size for slot in slots if slot % size == 0)
        for request, start, stop, table in rows:
            first = values["positions"][start]
            known = self._known.get(request, [])[:first]
            self._known[request] = self._prefixes.extended(known, values["input_ids"][start:stop])
            written = self._known[request][len(known) :]
            if not self._is_whole(table, first):
                written = [UNWRITTEN] * len(written)
            for slot, prefix in zip(slots[start:stop], written, strict=True):
                self._changed[slot // size] = seen.step
                self.states.pop(slot // size, None)
                self.blocks.setdefault(slot // size, [UNWRITTEN] * size)[slot % size] = prefix
        self._rows[seen.step] = {}
        for (request, start, _, _), num_drafts in zip(rows, values["drafts"], strict=True):
            row = _Row(values["positions"][start], num_drafts, self._known[request], states.get(request, ()))
            self._rows[seen.step][request] = row
            if row.blocks and not num_drafts:
                self._leave(seen.step, row, len(row.prefixes))
        for request, start, _, table in rows:
            found = self._behind(seen.step, request, values["positions"][start], table)
            if found is not None:
                return found
        return None

    def _first_states(self, step: int, request: int, blocks: Sequence[list[int]]) -> Difference | None:
        """Return the first state from which a request goes on as it begins that is not behind its own tokens."""
        known = self._known[request]
        for size, held in zip(self._state_sizes, blocks if known else (), strict=False):
            there = self.states.get(held[(len(known) - 1) // size], UNWRITTEN)
            if there != known[-1]:
                return self._difference(step, request, len(known) - 1, known[-1], there, variable="first_state")
        return None

    def _is_whole(self, table: Sequence[int], first: int) -> bool:
        """Tell whether nothing is lost of the blocks up to a position."""
        return self.lost.isdisjoint(table[: -(-first // self.size)])

    def _behind(self, step: int, request: int, first: int, table: Sequence[int]) -> Difference | None:
        """Return the first entry behind a request that is not of its own tokens."""
        size, known = self.size, self._known[request]
        if not self._is_whole(table, first):
            return None
        for index in range(-(-first // size)):
            due = known[index * size : min(first, (index + 1) * size)]
            there = self.blocks.get(table[index], [UNWRITTEN] * size)[: len(due)]
            if there != due:
                place = next(place for place, (one, other) in enumerate(zip(due, there, strict=True)) if one != other)
                return self._difference(step, request, index * size + place, due[place], there[place])
        return None

    def stored(self, seen: Observation) -> Difference | None:
        """Return the first entry of blocks that are stored which is not of their request's tokens."""
        values, size = seen.values, self.size
        due = self._prefixes.extended([], values["tokens"])
        for block, index in zip(values["blocks"], values["indexes"], strict=True):
            there = self.blocks.get(block, [UNWRITTEN] * size)
            for position, prefix in enumerate(due[index * size : (index + 1) * size], index * size):
                if there[position % size] != prefix:
                    wrong = position, prefix, there[position % size]
                    return self._difference(seen.step, seen.requests[0], *wrong, variable="stored")
        return None

    def _difference(
        self, step: int, request: int, position: int, due: int, there: int, variable: str = "attended"
    ) -> Difference:
        expected, actual = self._prefixes.told(due, there)
        return Difference(
            plane="kv",
            variable=variable,
            request=f"submit {request}",
            step=step,
            position=position,
            expected=expected,
            actual=actual,
        )


class AttendedTokens(Judge):
    """Judge of the observations of one run of all of its engines, in the order in which they were made."""

    sees = ("log",)
    sees_of = (ENGINE, PRODUCER)

    def __init__(self) -> None:
        self._observations: list[Observation] = []
        prefixes = Prefixes()
        self._caches: dict[EngineName, _Cache] = {ENGINE: _Cache(prefixes), PRODUCER: _Cache(prefixes)}
        self._store: dict[int, list[int]] = {}
        self._stored_states: dict[int, int] = {}

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        self._observations += [seen for seen in log if isinstance(seen, Observation)]

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._observations else ()

    def at_end(self, end: End) -> Difference | None:
        # A step's kernels wait for the loads that belong to it, whenever its inputs were looked at.
        belonging = [seen for seen in self._observations if _belongs_to_step(seen)]
        if any(seen.of == PRODUCER for seen in self._observations):
            # Loads are from there.
            self._store, self._stored_states = self._caches[PRODUCER].blocks, self._caches[PRODUCER].states
        for seen in self._observations:
            cache = self._caches[seen.of]
            match seen.point:
                case "opened":
                    cache.opened(seen)
                case "scheduled":
                    cache.planned(seen)
                case "copied":
                    cache.copied(seen)
                case "zeroed":
                    cache.zeroed(seen)
                case "processed":
                    cache.processed(seen)
                case "transfer" if seen.values["phase"] == "copies" and not _belongs_to_step(seen):
                    self._copy(seen)
                case "stored":
                    found = cache.stored(seen)
                    if found is not None:
                        return told_of(found, seen.of)
                case "inputs":
                    for load in belonging:
                        if load.step == seen.step:
                            self._copy(load)
                    found = cache.step(seen)
                    if found is not None:
                        return told_of(found, seen.of)
        return None

    def _copy(self, seen: Observation) -> None:
        """Copy blocks between the cache and the store, less those that are lost."""
        values, cache = seen.values, self._caches[ENGINE]
        first_state = len(values["blocks"]) - values["num_states"]
        for index, (block, slot) in enumerate(zip(values["blocks"], values["slots"], strict=True)):
            if index in values["lost"]:
                if values["of"] == "load" and values["is_synchronous"]:
                    cache.lost.add(block)
                continue
            if index >= first_state:
                self._copy_state(values["of"], block, slot)
            elif values["of"] == "load":
                cache.loaded(block, list(self._store.get(slot, [UNWRITTEN] * cache.size)))
            else:
                self._store[slot] = list(cache.blocks.get(block, [UNWRITTEN] * cache.size))

    def _copy_state(self, of: str, block: int, slot: int) -> None:
        cache = self._caches[ENGINE]
        if of == "load":
            cache.loaded_state(block, self._stored_states.get(slot, UNWRITTEN))
        else:
            self._stored_states[slot] = cache.states.get(block, UNWRITTEN)


def _belongs_to_step(seen: Observation) -> bool:
    """Tell whether a step waits for a load, which is copied in it."""
    values = seen.values
    is_copy = seen.point == "transfer" and values["phase"] == "copies"
    return is_copy and values["of"] == "load" and values["is_synchronous"]
