"""Hits of the prefix cache: that a request finds as much of its tokens as is there for it.

Verifies: that a request which begins need not compute again what lies in blocks that were registered in steps before
and that nobody has taken since: of full attention all of them, of layers with sliding windows those in front of where
the request goes on; beside drafters that drop it also one behind that. Of a window so much is kept of a prompt that who
comes with the same one, or goes on from it, finds it.
Does not verify: that what is found is right (`layer_groups.py` does); tokens of outputs, which may be registered late;
what is registered in the same step; requests that may not read the cache; prompts that part from others elsewhere.
"""

from collections.abc import Sequence
from math import lcm

from workers.judge.broken_identities import broken
from workers.judge.judge import End, Judge
from workers.judge.layer_groups import Group, groups_of
from workers.judge.prefixes import Prefixes
from workers.record.evidence import Difference, fact
from workers.record.log import Entry
from workers.record.observation import Observation

PLANES = ("blocks",)


class Hits(Judge):
    """Judge of the observations of one run, in the order in which they were made.

    Where an engine has `drafts`, one block behind each hit may be dropped.
    """

    sees = ("log",)

    def __init__(self, drafts: bool) -> None:
        self._dropped = drafts
        self._prefixes = Prefixes()
        self._groups: list[Group] = []
        # Tokens by which hits end: a block of each group does; and how many tokens ahead of a block its hash covers.
        self._step, self._ahead = 1, 0
        self._observations: list[Observation] = []
        self._inputs: dict[int, Observation] = {}
        # Prefixes of each request, as far as it was known when it began, and how many tokens its prompt has.
        self._known: dict[int, list[int]] = {}
        self._prompts: dict[int, int] = {}
        # By group and the prefix at its end the blocks that are registered; of each of these where it is.
        self._registered: dict[tuple[int, int], set[int]] = {}
        self._entry_of: dict[int, tuple[int, int]] = {}

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._known else ()

    def see_log(self, log: Sequence[Entry | Observation]) -> None:
        for seen in log:
            assert isinstance(seen, Observation), "its decisions are its own"
            self._observations.append(seen)
            if seen.point == "inputs":
                self._inputs[seen.step] = seen

    def at_end(self, end: End) -> Difference | None:
        for seen in self._observations:
            match seen.point:
                case "opened":
                    self._groups = groups_of(seen)
                    self._step = lcm(*(group.size for group in self._groups))
                    # What is kept of a window depends on it; of full attention all is.
                    self._dropped &= not seen.values["windows"] or seen.values["draft_shift"] > 0
                    # Nothing is dropped where the hash covers what a drafter reads ahead of a block.
                    self._ahead = seen.values["hash_ahead"]
                    self._dropped &= not self._ahead
                case "controlled" if seen.values["what"] == "cleared":
                    self._registered.clear()
                    self._entry_of.clear()
                case "scheduled":
                    found = self._planned(seen)
                    if found is not None:
                        return found
        return None

    def _planned(self, seen: Observation) -> Difference | None:
        """Return the first request that begins in a step with less than is there for it."""
        taken, num_gone = seen.values["taken"], 0
        hits = dict(zip(seen.requests, seen.values["scheduled_computed"], strict=True))
        for request, tokens in seen.values["begun"]:
            self._known[request] = self._prefixes.extended([], tokens)
            self._prompts.setdefault(request, len(tokens))
        for request, count in sorted(seen.values["lookups"], key=lambda pair: pair[1]):
            for block in taken[num_gone:count]:
                self._forget(block)
            num_gone = count
            least = self._least(self._known[request])
            if hits[request] < least:
                where = seen.step, hits[request]
                return broken("blocks", "hits", request, where, fact("at_least", least=least), hits[request])
        for block in taken[num_gone:]:
            self._forget(block)
        if seen.step in self._inputs:
            self._register(seen, self._inputs[seen.step])
        return None

    def _forget(self, block: int) -> None:
        entry = self._entry_of.pop(block, None)
        if entry is not None:
            self._registered[entry].discard(block)

    def _needed(self, group: Group, length: int) -> range:
        """Return which blocks a group needs of the first tokens of a request."""
        stop = length // group.size
        first = 0 if group.window is None else max(0, stop + (1 - group.window) // group.size)
        return range(first, stop + self._dropped)

    def _kept(self, group: Group, prompt: int) -> set[int] | None:
        """Return which blocks of a prompt are kept for others, None if all are."""
        if group.window is None:
            return None
        step = self._step
        lengths = (prompt - 1, prompt) if self._dropped else (prompt - 1,)
        ends = (max(0, length // step - self._dropped) * step for length in lengths)
        return {index for end in ends for index in self._needed(group, end)}

    def _least(self, known: Sequence[int]) -> int:
        """Return how many of a request's tokens are there for it at least: all but the last may be."""
        step = self._step
        lengths = range((len(known) - 1) // step * step, 0, -step)
        return next((length for length in lengths if self._is_there(known, length)), 0)

    def _is_there(self, known: Sequence[int], length: int) -> bool:
        """Tell whether each group has what it needs of the first tokens of a request."""
        for number, group in enumerate(self._groups):
            needed = self._needed(group, length)
            if group.window is not None and self._dropped and group.size < self._step and length < group.window:
                # Of shorter blocks one is dropped there, and the rest up to a longer one with it.
                return False
            # A token is left to compute, and what the last hash covers is known.
            if needed.stop * group.size + max(1, self._ahead) > len(known):
                return False
            if not all(self._registered.get((number, self._hashed(known, group, index))) for index in needed):
                return False
        return True

    def _hashed(self, known: Sequence[int], group: Group, index: int) -> int:
        """Return the prefix that the hash of a block covers."""
        return known[(index + 1) * group.size - 1 + self._ahead]

    def _register(self, planned: Observation, inputs: Observation) -> None:
        """Register the blocks that a step fills with tokens which were known when their request began."""
        starts, windows = inputs.values["starts"], dict(planned.values["windows"])
        blocks = dict(planned.values["blocks"])
        for request, start, stop in zip(inputs.requests, starts, starts[1:], strict=False):
            known = self._known[request]
            end = min(inputs.values["positions"][start] + stop - start, len(known) - self._ahead)
            held_by_group = (blocks.get(request, []), *windows.get(request, ()))
            for number, (group, held) in enumerate(zip(self._groups, held_by_group, strict=False)):
                kept = self._kept(group, self._prompts[request])
                for index, block in enumerate(held[: end // group.size]):
                    if block and (kept is None or index in kept):
                        self._forget(block)
                        self._entry_of[block] = number, self._hashed(known, group, index)
                        self._registered.setdefault(self._entry_of[block], set()).add(block)
