"""Logits processing (masks, penalties, corruption) between target model and sampler."""

from collections.abc import Sequence

from scenarios.sampling import SamplingParams
from workers.engine.context import Context, Forward, SpecialRows, arguments_of
from workers.engine.input_batch import Row
from workers.engine.memory import Staging
from workers.engine.request import Plan
from workers.kernels.copies.definition import CopyLine
from workers.kernels.process_logits.definition import ProcessLogits, WriteHistory
from workers.kernels.spoil_logits.definition import SpoilLogits
from workers.lanes.lane import Machine

_write_history = arguments_of(WriteHistory, "rows")
_process_logits = arguments_of(ProcessLogits, "rows")

NO_ROWS = SpecialRows((), (), (), (), (), ())


def special_rows(rows: Sequence[Row]) -> SpecialRows:
    """Return the indexes of rows with special sampling, by group."""
    for row in rows:
        if row.plan.request.has_params or row.plan.scheduled.spoils.nan_logits:
            break
    else:
        return NO_ROWS
    sampled = tuple((index, row.plan) for index, row in enumerate(rows) if not row.plan.discard)
    return SpecialRows(
        processed=tuple(index for index, plan in sampled if plan.request.params.changes_logits),
        spoiled=tuple(index for index, plan in sampled if plan.scheduled.spoils.nan_logits),
        logprobs=tuple(index for index, plan in sampled if plan.request.params.num_logprobs),
        grammar=tuple(index for index, plan in sampled if plan.request.params.grammar),
        random=tuple(index for index, plan in sampled if plan.request.params.temperature),
        limited=tuple(index for index, plan in sampled if is_limited(plan.request.params)),
    )


def is_limited(params: SamplingParams) -> bool:
    """Return whether top-k or top-p limits the tokens that a request may sample; this engine has no min-p."""
    return params.temperature > 0 and (params.top_k > 0 or params.top_p < 1)


def copy_lines(context: Context, machine: Machine, plan: Plan, staging: Staging) -> None:
    """Write new or resumed requests' lines of the parameter table; enqueue copies to the device."""
    length = context.memory.line_length
    for row in plan.rows:
        if row.scheduled.step_in_epoch == 0 and row.request.params.changes_logits:
            first = row.request.state_slot * length
            line = staging.lines.span(first, first + length)
            with machine.host(line, "w") as staged:
                staged[:] = context.functions.params_line(row.request, context.spec)
            target = context.memory.lines.span(first, first + length)
            context.h2d.launch(context.functions.copy_line, context.arguments(CopyLine, line, target))


def launch(context: Context, forward: Forward) -> None:
    """Enqueue the ops that corrupt, mask and penalise logits.

    A step without such rows enqueues nothing.
    """
    launch, functions, memory, view = context.compute.launch, context.functions, context.memory, forward.view
    named = forward.named
    if named.spoiled:
        rows = memory.special_rows("spoiled", len(named.spoiled))
        num_logits = (1 + context.spec.num_speculative_tokens) * context.spec.vocab_size
        launch(functions.spoil_logits, context.arguments(SpoilLogits, rows, view.logits, num_logits))
    if not named.processed:
        return
    rows = memory.special_rows("processed", len(named.processed))
    launch(functions.write_history, context.cached(_write_history, view, rows))
    launch(functions.process_logits, context.cached(_process_logits, view, rows))
