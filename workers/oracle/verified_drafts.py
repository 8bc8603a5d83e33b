"""Drafts that a row verifies: as proposed, cut off by a grammar, spoiled by an event; and their sampler status."""

from collections.abc import Iterator, Sequence
from math import inf, nan

from scenarios.spec import EngineSpec
from workers.oracle.drafters import NO_DRAFT
from workers.oracle.incremental_tape import RowOutcome
from workers.oracle.logits_processing import cut_off
from workers.oracle.random_sampling import Drawn, spoiled
from workers.oracle.tape import SpoiledLogit
from workers.oracle.truth import Truth
from workers.record.log import UNSPOILED, ScheduledRow

# The largest id below the vocabulary that is no sentinel.
BELOW = -2
# Bits of a row's sampler status: a draft outside the vocabulary, no target where its tokens end, a drawn draft without
# a distribution that it was drawn from.
OUTSIDE, NO_TARGET, UNDEFINED = 1, 2, 4


def spoiled_logit_of(row: ScheduledRow, spec: EngineSpec) -> SpoiledLogit | None:
    """Return the spoiled logit of a row, if there is one."""
    event = row.spoils.logit
    if event is None:
        return None
    return SpoiledLogit(min(event.column, row.d), event.token % spec.vocab_size, inf if event.value == "inf" else nan)


def drafts_of(
    truth: Truth, row: ScheduledRow, base: int, was_sampled: bool, spec: EngineSpec
) -> tuple[list[int], Drawn]:
    """Return the drafts of a row behind position `base`, and the proposals of those that were drawn.

    The device has what a request proposed only if it `was_sampled` in the step before.
    """
    drafts = [NO_DRAFT] * row.d
    if truth.grammar:
        # The host keeps the drafts, and cuts off those that the grammar forbids.
        drafts = (truth.drafts + drafts)[: row.d]
        drafts = cut_off(truth.grammar, truth.tape.tokens[truth.num_prompt : base + 1], drafts, NO_DRAFT)
    elif was_sampled:
        drafts = (truth.drafts + drafts)[: row.d]
    drawn = truth.drawn and truth.drawn[: sum([draft != NO_DRAFT for draft in drafts])]
    if row.spoils is not UNSPOILED and was_sampled and not truth.grammar:
        return with_spoiled_draft(row, spec, drafts, drawn)
    return drafts, drawn


def with_spoiled_draft(row: ScheduledRow, spec: EngineSpec, drafts: list[int], drawn: Drawn) -> tuple[list[int], Drawn]:
    """Return the drafts and proposals of a row with its spoiled draft applied."""
    event = row.spoils.draft
    if event is None:
        return drafts, drawn
    at = min(event.draft, row.d - 1)
    match event.what:
        case "above" | "below":
            token = spec.vocab_size if event.what == "above" else BELOW
            return [*drafts[:at], token, *drafts[at + 1 :]], drawn
        case "nan" | "inf" if at < len(drawn):
            value = inf if event.what == "inf" else nan
            proposal = spoiled(drawn[at], event.token % spec.vocab_size, value)
            return drafts, (*drawn[:at], proposal, *drawn[at + 1 :])
        case _:
            return drafts, drawn


def status_of(row: ScheduledRow, spec: EngineSpec, drafts: Sequence[int], drawn: Drawn, outcome: RowOutcome) -> int:
    """Return the sampler status of a row: bits of OUTSIDE, NO_TARGET and UNDEFINED."""
    if row.spoils.no_valid_token:
        return 0
    status = 0 if outcome.has_target else NO_TARGET
    if any(draft != NO_DRAFT and not 0 <= draft < spec.vocab_size for draft in drafts):
        status |= OUTSIDE
    # Of a draft that is no token it does not matter what it was drawn from.
    if any(not each.masses and 0 <= draft < spec.vocab_size for each, draft in zip(drawn, drafts, strict=False)):
        status |= UNDEFINED
    return status


def happened_in(status: int, valid: int) -> Iterator[str]:
    """Yield the probes that a row with a status hits."""
    if status & OUTSIDE:
        yield "draft_outside"
    if status & UNDEFINED:
        yield "draft_undefined"
    if status & NO_TARGET and valid:
        yield "undefined_behind_drafts"
