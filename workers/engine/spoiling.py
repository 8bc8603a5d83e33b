"""Trace events that corrupt a batch row: NaN or infinite logits, invalid draft tokens."""

from collections.abc import Iterator, Sequence

from scenarios.drafters import TRAITS
from workers.engine.context import Context, Forward
from workers.engine.input_batch import Row
from workers.engine.memory import Array
from workers.engine.random_sampling import samples_drafts
from workers.kernels.spoil_logits.definition import SpoilOneDraft, SpoilOneLogit

# An id that is neither a token nor a sentinel.
BELOW = -2


def stage_drafts(context: Context, staged: Array, rows: Sequence[Row], previous: Sequence[int]) -> None:
    """Overwrite a host drafter's tokens with invalid ids in the pinned inputs, for spoil events."""
    if TRAITS[context.spec.drafter].goes_through_host:
        for place, token in _ids(context, rows, previous):
            staged[context.memory.layout.host_drafts + place] = token


def launch_drafts(context: Context, rows: Sequence[Row], previous: Sequence[int]) -> None:
    """Enqueue ops that corrupt draft tokens or draft logits on the device, for spoil events."""
    launch, functions, memory, spec = context.compute.launch, context.functions, context.memory, context.spec
    if not TRAITS[spec.drafter].goes_through_host:
        for place, token in _ids(context, rows, previous):
            launch(functions.spoil_one_draft, context.arguments(SpoilOneDraft, memory.draft_tokens.all, place, token))
    for row, at in zip(rows, previous, strict=True):
        event = row.plan.scheduled.spoils.draft
        if event is None or at < 0 or event.what in ("above", "below"):
            continue
        if samples_drafts(row.plan.request.params, spec):
            line = row.plan.request.state_slot * spec.num_speculative_tokens + min(
                event.draft, row.plan.scheduled.d - 1
            )
            place = line * spec.vocab_size + event.token % spec.vocab_size
            is_infinite = int(event.what == "inf")
            launch(
                functions.spoil_one_logit, context.arguments(SpoilOneLogit, memory.draft_logits.all, place, is_infinite)
            )


def launch_logits(context: Context, forward: Forward, rows: Sequence[Row]) -> None:
    """Enqueue ops that set target logits to NaN or infinity, for spoil events."""
    spec, functions = context.spec, context.functions
    for index, row in enumerate(rows):
        event = row.plan.scheduled.spoils.logit
        if event is not None:
            line = index * (1 + spec.num_speculative_tokens) + min(event.column, row.plan.scheduled.d)
            place = line * spec.vocab_size + event.token % spec.vocab_size
            is_infinite = int(event.value == "inf")
            spoiled = context.arguments(SpoilOneLogit, forward.view.logits, place, is_infinite)
            context.compute.launch(functions.spoil_one_logit, spoiled)


def _ids(context: Context, rows: Sequence[Row], previous: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (draft token index, invalid id) for each draft token that an event corrupts."""
    spec = context.spec
    for row, at in zip(rows, previous, strict=True):
        event = row.plan.scheduled.spoils.draft
        if event is not None and at >= 0 and event.what in ("above", "below"):
            column = min(event.draft, row.plan.scheduled.d - 1)
            yield at * spec.num_speculative_tokens + column, spec.vocab_size if event.what == "above" else BELOW
