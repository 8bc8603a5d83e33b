"""Attended tokens: what lies in a cache where a request attends to it, by the tokens that it was computed from.

The judge keeps a cache of its own in which an entry is the identity of a whole prefix. Steps write it where they say
that they write theirs, and transfers copy from it and to it when their bytes are copied, whatever the engine believes.

Verifies: that behind whatever a request computes lie the entries of exactly its own tokens, at their positions: of its
own earlier steps, of a prefix that it takes over, or of blocks that it has loaded, from a store or the cache of a
producer, of which the same is verified; that a store which tells what it is to keep of a request keeps that.
Does not verify: values; what a step itself writes (`step_identities` does); recurrent states, and models that have any;
what a request computes behind a block that its step was to load and has lost, until that block is computed.
"""

from collections.abc import Sequence

from scenarios.spec import ENGINE, PRODUCER, EngineName
from workers.judge.judge import End, Judge, told_of
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANES = ("kv",)
# The identity of no prefix, and of what nobody wrote.
_NOTHING, _UNWRITTEN = 0, -1


class _Prefixes:
    """Identities of whole prefixes, one each, whichever cache has an entry of it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self.tokens: list[tuple[int, int]] = [(-1, -1)]

    def extended(self, prefixes: list[int], tokens: Sequence[int]) -> list[int]:
        """Return prefixes and those that some tokens behind the last make of it."""
        found = list(prefixes)
        for token in tokens:
            pair = (found[-1] if found else _NOTHING, token)
            if pair not in self._numbers:
                self._numbers[pair] = len(self.tokens)
                self.tokens.append((len(found), token))
            found.append(self._numbers[pair])
        return found


class _Cache:
    """The cache of one engine, and what its requests have computed."""

    def __init__(self, prefixes: _Prefixes) -> None:
        self._prefixes = prefixes
        self.blocks: dict[int, list[int]] = {}
        self.size, self.has_states = 0, False
        # Blocks that a step waited for in vain, until they are computed.
        self.lost: set[int] = set()
        # Tokens and prefixes of each request, as far as it has computed them.
        self._known: dict[int, list[int]] = {}
        self._planned: dict[int, tuple[Sequence[int], Sequence[int], dict[int, list[int]]]] = {}

    def opened(self, seen: Observation) -> None:
        self.size, self.has_states = seen.values["block_size"], bool(seen.values["state_sizes"])

    def planned(self, seen: Observation) -> None:
        self._planned[seen.step] = seen.requests, seen.values["scheduled_computed"], dict(seen.values["begun"])

    def step(self, seen: Observation) -> Difference | None:
        """Write what a step writes, and compare what lies behind it."""
        requests, computed, prompts = self._planned[seen.step]
        # What a request that begins need not compute is known.
        done = dict(zip(requests, computed, strict=True))
        for request, tokens in prompts.items():
            self._known[request] = self._prefixes.extended([], tokens[: done[request]])
        values, size = seen.values, self.size
        rows = list(zip(seen.requests, values["starts"], values["starts"][1:], values["tables"], strict=False))
        for request, start, stop, _ in rows:
            first = values["positions"][start]
            known = self._known.get(request, [])[:first]
            self._known[request] = self._prefixes.extended(known, values["input_ids"][start:stop])
            written = self._known[request][len(known) :]
            for slot, prefix in zip(values["slots"][start:stop], written, strict=True):
                if slot % size == 0:
                    self.lost.discard(slot // size)
                self.blocks.setdefault(slot // size, [_UNWRITTEN] * size)[slot % size] = prefix
        for request, start, _, table in rows:
            found = self._behind(seen.step, request, values["positions"][start], table)
            if found is not None:
                return found
        return None

    def _behind(self, step: int, request: int, first: int, table: Sequence[int]) -> Difference | None:
        """Return the first entry behind a request that is not of its own tokens."""
        size, known = self.size, self._known[request]
        if not self.lost.isdisjoint(table[: -(-first // size)]):
            return None
        for index in range(-(-first // size)):
            due = known[index * size : min(first, (index + 1) * size)]
            there = self.blocks.get(table[index], [_UNWRITTEN] * size)[: len(due)]
            if there != due:
                place = next(place for place, (one, other) in enumerate(zip(due, there, strict=True)) if one != other)
                return self._difference(step, request, index * size + place, due[place], there[place])
        return None

    def stored(self, seen: Observation) -> Difference | None:
        """Return the first entry of blocks that are stored which is not of their request's tokens."""
        values, size = seen.values, self.size
        due = self._prefixes.extended([], values["tokens"])
        for block, index in zip(values["blocks"], values["indexes"], strict=True):
            there = self.blocks.get(block, [_UNWRITTEN] * size)
            for position, prefix in enumerate(due[index * size : (index + 1) * size], index * size):
                if there[position % size] != prefix:
                    wrong = position, prefix, there[position % size]
                    return self._difference(seen.step, seen.requests[0], *wrong, variable="stored")
        return None

    def _difference(
        self, step: int, request: int, position: int, due: int, there: int, variable: str = "attended"
    ) -> Difference:
        _, token = self._prefixes.tokens[due]
        actual = fact("entry_unwritten")
        if there != _UNWRITTEN:
            other, other_token = self._prefixes.tokens[there]
            actual = fact("entry_of_token", token=other_token, position=other)
        return Difference(
            plane="kv",
            variable=variable,
            request=f"submit {request}",
            step=step,
            position=position,
            expected=fact("entry_of_prefix", token=token),
            actual=actual,
        )


class AttendedTokens(Judge):
    """Judge of the observations of one run of all of its engines, in the order in which they were made."""

    sees = ("log",)
    sees_of = (ENGINE, PRODUCER)

    def __init__(self) -> None:
        self._observations: list[Observation] = []
        prefixes = _Prefixes()
        self._caches: dict[EngineName, _Cache] = {ENGINE: _Cache(prefixes), PRODUCER: _Cache(prefixes)}
        self._store: dict[int, list[int]] = {}

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        self._observations += [seen for seen in log if isinstance(seen, Observation)]

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._observations and not self._caches[ENGINE].has_states else ()

    def at_end(self, end: End) -> Difference | None:
        # A step's kernels wait for the loads that belong to it, whenever its inputs were looked at.
        belonging = [seen for seen in self._observations if _belongs_to_step(seen)]
        if any(seen.of == PRODUCER for seen in self._observations):
            # Loads are from there.
            self._store = self._caches[PRODUCER].blocks
        for seen in self._observations:
            cache = self._caches[seen.of]
            match seen.point:
                case "opened":
                    cache.opened(seen)
                    if cache.has_states:
                        return None
                case "scheduled":
                    cache.planned(seen)
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
        for index, (block, slot) in enumerate(zip(values["blocks"], values["slots"], strict=True)):
            if index in values["lost"]:
                if values["of"] == "load" and values["is_synchronous"]:
                    cache.lost.add(block)
                continue
            if values["of"] == "load":
                cache.blocks[block] = list(self._store.get(slot, [_UNWRITTEN] * cache.size))
            else:
                self._store[slot] = list(cache.blocks.get(block, [_UNWRITTEN] * cache.size))


def _belongs_to_step(seen: Observation) -> bool:
    """Tell whether a step waits for a load, which is copied in it."""
    values = seen.values
    is_copy = seen.point == "transfer" and values["phase"] == "copies"
    return is_copy and values["of"] == "load" and values["is_synchronous"]
