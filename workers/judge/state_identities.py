"""Identities of recurrent states in a step: in which blocks they are, and whether a row begins or goes on from its own.

Does not verify: behind how many tokens a row goes on, which the steps before it tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from workers.judge.broken_identities import broken
from workers.record.evidence import Difference, fact

# A step, and the position of a token in its request.
Where = tuple[int, int]


def blocks_of_states(
    request: int, where: Where, slots: Sequence[int], held: Sequence[int], holders: Mapping[int, list[int]]
) -> Iterator[Difference]:
    """Yield states that are not in the blocks planned for them, or are in another's too.

    A row has one, behind all of its tokens, or one behind each from `where` on: in the first blocks that it holds.
    """
    step, first = where
    for index, slot in enumerate(slots):
        due = held[index] if index < len(held) else None
        there = fact("block", block=slot)
        if slot != due:
            wanted = fact("state_in_block", block=due)
            yield broken("blocks", "states", request, (step, first + index), wanted, there)
        if len(held_by := holders.get(slot, [])) > 1:
            there = fact("block_of_several", block=slot, holders=held_by)
            yield broken("blocks", "states", request, (step, first + index), fact("a_block_for_its_state"), there)


def beginning_of_state(request: int, where: Where, goes_on: bool) -> Iterator[Difference]:
    """Yield a state that a row wrongly begins with, or wrongly goes on from."""
    is_due = where[1] > 0
    if goes_on != is_due:
        how = fact("begins"), fact("goes_on")
        yield broken("inputs", "goes_on", request, where, how[is_due], how[goes_on])


def holders_of(
    blocks: Iterable[tuple[int, list[int]]], states: Mapping[int, Iterable[list[int]]]
) -> dict[int, list[int]]:
    """Return by block its requests, once for tokens and once for each state; empty where there are no states."""
    holders: dict[int, list[int]] = {}
    for request, held in blocks if states else ():
        for block in (block for group in (held, *states[request]) for block in group):
            holders.setdefault(block, []).append(request)
    return holders
