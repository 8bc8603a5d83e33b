"""What the tokens of one row come to: how many it yields, and what chance had to do with it."""

from collections.abc import Sequence
from typing import NamedTuple

from workers.oracle.incremental_tape import Grown
from workers.oracle.random_sampling import Proposal
from workers.oracle.truth import Truth


class Decided(NamedTuple):
    """How many tokens a row yields, how many were drawn, how many of those narrowly, and which probes it hits.

    Without a target it ends where a token should be chosen.
    """

    valid: int = 0
    num_drawn: int = 0
    num_ambiguous: int = 0
    happened: tuple[str, ...] = ()
    has_target: bool = True


NOT_SAMPLED = Decided()


def decided(truth: Truth, first: int, drafts: Sequence[int], drawn: Sequence[Proposal]) -> Decided:
    """Decide the tokens of a row from position `first` on; a tape that grows does so by them."""
    tape = truth.tape
    if isinstance(tape, Grown):
        found = tape.go_on(drafts, truth.params, drawn)
        what = _of_drawn(drawn, len(found.tokens)) + found.happened
        return Decided(len(found.tokens), len(found.tokens), int(found.is_ambiguous), what, found.has_target)
    right = 0
    while right < len(drafts) and drafts[right] == tape.tokens[first + right]:
        right += 1
    has_target = first + right < tape.end
    valid = 1 + right if has_target else tape.end - first
    if not truth.params.temperature:
        return Decided(valid, has_target=has_target)
    narrow = tape.ambiguous.intersection(range(first, first + valid))
    return Decided(valid, valid, len(narrow), _of_drawn(drawn, valid), has_target)


def _of_drawn(drawn: Sequence[Proposal], valid: int) -> tuple[str, ...]:
    """Return which probes a row with these drawn drafts hits by yielding so many tokens."""
    found = ("drawn_draft_accept",) if drawn and valid > 1 else ()
    return (*found, "drawn_draft_reject") if 0 < valid <= len(drawn) else found
