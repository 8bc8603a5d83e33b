"""Check sliding-window KV-cache groups: block tables, slot mapping, attended entries.

Sliding-window layers attend only to the last tokens of a request. The blocks before the window are freed and may be
allocated to any request in any group. The judge keeps a model KV cache in which an entry is the identity of a whole
prefix of tokens.

Verifies:
- the block table has the planned block for each position in the window; none of these blocks is freed, or held by
  another request or group except for a shared prefix;
- each token is written to its slot in these blocks, and padding tokens are written nowhere;
- the entries in the window before a step were written by the group for exactly the request's tokens.

Does not verify:
- values of entries;
- block tables of full attention (`model_inputs` does);
- entries before a window.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scenarios.spec import ENGINE
from workers.judge.history import Blocks, History, Row, Step
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.judge.prefixes import UNWRITTEN, Prefixes
from workers.record.engine_records import OpenedValues
from workers.record.evidence import Difference, fact

PLANES = ("blocks", "inputs", "kv")
# The block id that replaces freed blocks in a block table.
_FREED = 0
# By block, its holders (request and group), each with the block's index in its block table.
_Holders = Mapping[int, Mapping[tuple[int, int], int]]


class Group(NamedTuple):
    """A KV-cache group: block size, and attention window in tokens (None for full attention)."""

    size: int
    window: int | None

    def first_seen(self, position: int) -> int:
        """Return the first position that a token at `position` attends to."""
        return 0 if self.window is None else max(0, position + 1 - self.window)


def groups_of(sizes: OpenedValues) -> list[Group]:
    """Return the KV-cache groups of an engine, full attention first."""
    return [Group(sizes.block_size, None), *(Group(size, window) for size, window in sizes.windows)]


class _GroupRow(NamedTuple):
    """The inputs of a batch row in one group: first position, slot mapping, block table."""

    request: int
    first: int
    slots: Sequence[int]
    table: Blocks


def _group_row(row: Row, group: int) -> _GroupRow:
    """Return the inputs of a batch row in a group; group 0 is full attention."""
    slots, table = row.slots, row.table
    if group:
        slots, table = row.windows[group - 1].slots, row.windows[group - 1].table
    return _GroupRow(row.request, row.first, slots, table)


class WindowGroups(HistoryJudge):
    """Judge of sliding-window KV-cache groups: blocks, slots, attended entries."""

    @classmethod
    def of(cls, case: Case) -> "WindowGroups | None":
        """Return the judge; None for an engine without sliding-window layers."""
        return cls() if case.shows_steps and case.trace.spec.layers == "windows" else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if any(step.inputs and step.begun for step in history.steps_of(ENGINE).values()) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        own = end.history.engines[ENGINE]
        caches = _Caches(groups_of(own.sizes))
        for step in own.steps.values():
            if step.inputs is not None:
                yield from caches.step(step)


class _Caches:
    """Model of all groups' KV caches: the token prefix that each entry comes from."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups, self._prefixes = groups, Prefixes()
        # By request, the prefixes of its computed tokens, and the length of its prefix-cache hit.
        self._known: dict[int, list[int]] = {}
        self._hits: dict[int, int] = {}
        # By block, the group that wrote it last, and its entries.
        self._contents: dict[int, tuple[int, list[int]]] = {}

    def step(self, step: Step) -> Iterator[Difference]:
        """Check one step; yield its differences."""
        for request, tokens in step.plan.begun:
            self._hits[request] = step.computed[request]
            self._known[request] = self._prefixes.extended([], tokens[: step.computed[request]])
        holders = _holders(step)
        for number, group in enumerate(self._groups):
            if group.window is not None:
                for row in step.rows:
                    yield from self._planned(step.number, number, _group_row(row, number), holders)
                yield from self._padding(step, number)
        for row in step.rows:
            known = self._known.get(row.request, [])[: row.first]
            self._known[row.request] = self._prefixes.extended(known, row.input_ids)
        group_rows = [(number, _group_row(row, number)) for number in range(len(self._groups)) for row in step.rows]
        for number, group_row in group_rows:
            self._write(number, group_row)
        for number, group_row in group_rows:
            yield from self._seen(step.number, number, group_row)

    def _planned(self, step: int, number: int, group_row: _GroupRow, holders: _Holders) -> Iterator[Difference]:
        """Yield blocks in a row's window that are wrong or shared, and slots outside them."""
        group = self._groups[number]
        stop = group_row.first + len(group_row.slots)
        for index in range(group.first_seen(group_row.first) // group.size, -(-stop // group.size)):
            where = step, max(index * group.size, group.first_seen(group_row.first))
            block = group_row.table[index] if index < len(group_row.table) else _FREED
            held = holders.get(block, {})
            if block == _FREED or held.get((group_row.request, number)) != index:
                expected, actual = fact("own_block", index=index), fact("block", block=block)
                yield mismatch("blocks", "window_tables", group_row.request, where, expected, actual)
            # Blocks before the row's first token may have other holders too: `_seen` checks their entries.
            for (other, of), place in held.items() if index >= group_row.first // group.size else ():
                is_shared = (index + 1) * group.size <= self._hits.get(other, 0)
                if (other, of) != (group_row.request, number) and not (of == number and place == index and is_shared):
                    expected, actual = fact("a_block_of_its_own"), fact("block_of_another", block=block, other=other)
                    yield mismatch("blocks", "window_tables", group_row.request, where, expected, actual)
        for position, slot in enumerate(group_row.slots, group_row.first):
            index, place = divmod(position, group.size)
            own = group_row.table[index] * group.size + place if index < len(group_row.table) else None
            if slot != own:
                yield mismatch("inputs", "window_slots", group_row.request, (step, position), own, slot)

    def _padding(self, step: Step, number: int) -> Iterator[Difference]:
        """Yield a difference for each padding token that writes to a KV-cache slot."""
        for slot in step.window_padding[number - 1]:
            if slot >= 0:
                actual = fact("block", block=slot // self._groups[number].size)
                yield mismatch("inputs", "window_slots", None, (step.number, None), fact("padding_nowhere"), actual)

    def _write(self, number: int, group_row: _GroupRow) -> None:
        size, prefixes = self._groups[number].size, self._known[group_row.request][group_row.first :]
        for slot, prefix in zip(group_row.slots, prefixes, strict=True):
            of, entries = self._contents.get(slot // size, (-1, []))
            if of != number:
                entries = [UNWRITTEN] * size
                self._contents[slot // size] = number, entries
            entries[slot % size] = prefix

    def _seen(self, step: int, number: int, group_row: _GroupRow) -> Iterator[Difference]:
        """Yield a difference for each attended KV entry computed from other tokens."""
        group, known = self._groups[number], self._known[group_row.request]
        for position in range(group.first_seen(group_row.first), group_row.first):
            index, place = divmod(position, group.size)
            of, entries = self._contents.get(group_row.table[index], (-1, []))
            actual = entries[place] if of == number else UNWRITTEN
            if actual != known[position]:
                facts = self._prefixes.facts_of(known[position], actual)
                yield mismatch("kv", "attended", group_row.request, (step, position), *facts)


def _holders(step: Step) -> _Holders:
    """Return, for each block, the (request, group) pairs that hold it and their table indexes."""
    found: dict[int, dict[tuple[int, int], int]] = {}
    windows = dict(step.plan.windows)
    for request, blocks in step.plan.blocks:
        for number, held in enumerate((blocks, *windows.get(request, ()))):
            for index, block in enumerate(held):
                found.setdefault(block, {})[request, number] = index
    return found
