"""Draft tokens that a row verifies (proposed, cut by a grammar, corrupted), and status."""

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

# The largest id below the vocabulary that is not a sentinel.
BELOW = -2
# Bits of a row's sampler status: a draft token outside the vocabulary; no target distribution after the kept tokens; a
# sampled draft token without a draft distribution.
OUTSIDE, NO_TARGET, UNDEFINED = 1, 2, 4


def spoiled_logit_of(row: ScheduledRow, spec: EngineSpec) -> SpoiledLogit | None:
    """Return the corrupted logit of a row, if any."""
    event = row.spoils.logit
    if event is None:
        return None
    return SpoiledLogit(min(event.column, row.d), event.token % spec.vocab_size, inf if event.value == "inf" else nan)


def drafts_of(
    truth: Truth, row: ScheduledRow, base: int, was_sampled: bool, spec: EngineSpec
) -> tuple[list[int], Drawn]:
    """Return the draft tokens of a row after position `base`, and the proposals of sampled ones.

    The device has a request's proposal only if the request `was_sampled` in the previous step.
    """
    drafts = [NO_DRAFT] * row.d
    if truth.grammar:
        # The host stores the draft tokens, and removes those that the grammar forbids.
        drafts = (truth.drafts + drafts)[: row.d]
        drafts = cut_off(truth.grammar, truth.tape.tokens[truth.num_prompt : base + 1], drafts, NO_DRAFT)
    elif was_sampled:
        drafts = (truth.drafts + drafts)[: row.d]
    drawn = truth.drawn and truth.drawn[: sum([draft != NO_DRAFT for draft in drafts])]
    if row.spoils is not UNSPOILED and was_sampled and not truth.grammar:
        return with_spoiled_draft(row, spec, drafts, drawn)
    return drafts, drawn


def with_spoiled_draft(row: ScheduledRow, spec: EngineSpec, drafts: list[int], drawn: Drawn) -> tuple[list[int], Drawn]:
    """Return the draft tokens and proposals of a row with its corrupted draft token applied."""
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
    # The draft distribution of an invalid draft token does not matter.
    if any(not each.masses and 0 <= draft < spec.vocab_size for each, draft in zip(drawn, drafts, strict=False)):
        status |= UNDEFINED
    return status


def happened_in(status: int, valid: int) -> Iterator[str]:
    """Yield the probes that a row with this status hits."""
    if status & OUTSIDE:
        yield "draft_outside"
    if status & UNDEFINED:
        yield "draft_undefined"
    if status & NO_TARGET and valid:
        yield "undefined_behind_drafts"
