"""Groups of layers with blocks of their own for the same tokens: what lies in these where each group looks at it.

Layers with sliding windows see the last tokens of a request alone, and give up the blocks behind these, which others of
any group may have then. The judge keeps a cache of its own in which an entry is the identity of a whole prefix.

Verifies: that what a window sees is in the blocks planned for it, none of which is given up, or is another's but for a
prefix that both have; that each token is written there, and those that only fill a batch up nowhere; that what a group
sees of a request before a step are its own entries of exactly that request's tokens.
Does not verify: values; blocks of full attention (`step_identities.py` does); what lies behind a window.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workers.judge.broken_identities import broken
from workers.judge.judge import End, Judge
from workers.judge.prefixes import UNWRITTEN, Prefixes
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANES = ("blocks", "inputs", "kv")
# The block that stands for those that are given up.
_GIVEN_UP = 0
# Of each block its holders: a request and the number of a group of layers, and which of its blocks it is there.
_Holders = Mapping[int, Mapping[tuple[int, int], int]]


class Group(NamedTuple):
    """A group of layers: the size of its blocks, and how many tokens it sees, none where it sees all."""

    size: int
    window: int | None

    def first_seen(self, position: int) -> int:
        """Return the first position that is seen from another one."""
        return 0 if self.window is None else max(0, position + 1 - self.window)


def groups_of(opened: Observation) -> list[Group]:
    """Return the groups of an engine, that of full attention first, as it shows them once it is opened."""
    windows = (Group(size, window) for size, window in opened.values["windows"])
    return [Group(opened.values["block_size"], None), *windows]


@dataclass(frozen=True, slots=True)
class _Row:
    """A request in a step, in one group: its first position, where its tokens are written, and its table of blocks."""

    request: int
    first: int
    slots: Sequence[int]
    table: Sequence[int]


class LayerGroups(Judge):
    """Judge of the observations of one run, in the order in which they were made."""

    sees = ("log",)

    def __init__(self) -> None:
        self._prefixes = Prefixes()
        self._groups: list[Group] = []
        self._planned: dict[int, Observation] = {}
        # Prefixes of each request, as far as it has computed them, and how many it found.
        self._known: dict[int, list[int]] = {}
        self._hits: dict[int, int] = {}
        # What lies in a block, and of which group.
        self._contents: dict[int, tuple[int, list[int]]] = {}
        self._found: Difference | None = None

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._known else ()

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            match seen.point:
                case "opened":
                    self._groups = groups_of(seen)
                case "scheduled":
                    self._planned[seen.step] = seen
                case "inputs" if self._found is None:
                    self._found = next(self._of_step(seen), None)

    def at_end(self, end: End) -> Difference | None:
        return self._found

    def _of_step(self, seen: Observation) -> Iterator[Difference]:
        planned = self._planned[seen.step]
        self._begin(planned)
        rows = [list(_rows(number, seen)) for number in range(len(self._groups))]
        holders = self._holders(planned)
        for number, group in enumerate(self._groups):
            for row in rows[number] if group.window is not None else ():
                yield from self._planned_for(seen.step, number, row, holders)
            if group.window is not None:
                yield from self._padding(seen, number)
        starts = seen.values["starts"]
        for row, start, stop in zip(rows[0], starts, starts[1:], strict=False):
            known = self._known.get(row.request, [])[: row.first]
            self._known[row.request] = self._prefixes.extended(known, seen.values["input_ids"][start:stop])
        for number in range(len(self._groups)):
            for row in rows[number]:
                self._write(number, row)
        for number in range(len(self._groups)):
            for row in rows[number]:
                yield from self._seen_by(seen.step, number, row)

    def _begin(self, planned: Observation) -> None:
        done = dict(zip(planned.requests, planned.values["scheduled_computed"], strict=True))
        for request, tokens in planned.values["begun"]:
            self._hits[request] = done[request]
            self._known[request] = self._prefixes.extended([], tokens[: done[request]])

    def _holders(self, planned: Observation) -> _Holders:
        """Return by block its holders."""
        found: dict[int, dict[tuple[int, int], int]] = {}
        of_all = dict(planned.values["windows"])
        for request, blocks in planned.values["blocks"]:
            for number, held in enumerate((blocks, *of_all.get(request, ()))):
                for index, block in enumerate(held):
                    found.setdefault(block, {})[request, number] = index
        return found

    def _planned_for(self, step: int, number: int, row: _Row, holders: _Holders) -> Iterator[Difference]:
        """Yield blocks that a window sees and that are not those planned for it, and tokens written elsewhere."""
        group = self._groups[number]
        stop = row.first + len(row.slots)
        for index in range(group.first_seen(row.first) // group.size, -(-stop // group.size)):
            where = step, max(index * group.size, group.first_seen(row.first))
            block = row.table[index] if index < len(row.table) else _GIVEN_UP
            held = holders.get(block, {})
            if block == _GIVEN_UP or held.get((row.request, number)) != index:
                due, there = fact("own_block", index=index), fact("block", block=block)
                yield broken("blocks", "window_tables", row.request, where, due, there)
            # Of those in front of its first token it is told below what lies there, whoever has them.
            for (other, of), place in held.items() if index >= row.first // group.size else ():
                is_found = (index + 1) * group.size <= self._hits.get(other, 0)
                if (other, of) != (row.request, number) and not (of == number and place == index and is_found):
                    due, there = fact("a_block_of_its_own"), fact("block_of_another", block=block, other=other)
                    yield broken("blocks", "window_tables", row.request, where, due, there)
        for position, slot in enumerate(row.slots, row.first):
            index, place = divmod(position, group.size)
            own = row.table[index] * group.size + place if index < len(row.table) else None
            if slot != own:
                yield broken("inputs", "window_slots", row.request, (step, position), own, slot)

    def _padding(self, seen: Observation, number: int) -> Iterator[Difference]:
        """Yield places where a group writes tokens that only fill a batch up."""
        for slot in seen.values[f"window_slots_{number - 1}"][seen.values["starts"][-1] :]:
            if slot >= 0:
                there = fact("block", block=slot // self._groups[number].size)
                yield broken("inputs", "window_slots", None, (seen.step, None), fact("padding_nowhere"), there)

    def _write(self, number: int, row: _Row) -> None:
        size, prefixes = self._groups[number].size, self._known[row.request][row.first :]
        for slot, prefix in zip(row.slots, prefixes, strict=True):
            of, entries = self._contents.get(slot // size, (-1, []))
            if of != number:
                entries = [UNWRITTEN] * size
                self._contents[slot // size] = number, entries
            entries[slot % size] = prefix

    def _seen_by(self, step: int, number: int, row: _Row) -> Iterator[Difference]:
        """Yield entries that a group sees before a row's first token and that are not of its request's tokens."""
        group, known = self._groups[number], self._known[row.request]
        for position in range(group.first_seen(row.first), row.first):
            index, place = divmod(position, group.size)
            of, entries = self._contents.get(row.table[index], (-1, []))
            there = entries[place] if of == number else UNWRITTEN
            if there != known[position]:
                yield broken(
                    "kv", "attended", row.request, (step, position), *self._prefixes.told(known[position], there)
                )


def _rows(number: int, seen: Observation) -> Iterator[_Row]:
    """Yield the rows of a step as a group of layers is given them."""
    values = seen.values
    slots, tables = values["slots"], values["tables"]
    if number:
        slots, tables = values[f"window_slots_{number - 1}"], values[f"window_tables_{number - 1}"]
    starts = values["starts"]
    for row, (request, start, stop) in enumerate(zip(seen.requests, starts, starts[1:], strict=False)):
        yield _Row(request, values["positions"][start], slots[start:stop], tables[row])
