"""Change the logits of rows that ask for it, between the target model and the sampler."""

from collections.abc import Sequence

from workers.engine.context import Context, Forward
from workers.engine.input_batch import Row
from workers.engine.memory import Staging
from workers.engine.request import Plan
from workers.lanes.simulated import Machine


def rows_to_process(rows: Sequence[Row]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows whose logits their parameters change, and those whose logits an event spoils."""
    sampled = [(index, row.plan) for index, row in enumerate(rows) if not row.plan.discard]
    processed = tuple(index for index, plan in sampled if plan.request.params.changes_logits)
    return processed, tuple(index for index, plan in sampled if plan.spoiled)


def copy_lines(context: Context, machine: Machine, plan: Plan, staging: Staging) -> None:
    """Stage and copy the lines of requests that start or are resumed."""
    length = context.memory.line_length
    for row in plan.rows:
        if row.k == 0 and row.request.params.changes_logits:
            first = row.request.state_slot * length
            line = staging.lines.span(first, first + length)
            with machine.host(line, "w") as staged:
                staged[:] = context.parts.params_line(row.request, context.spec)
            context.h2d.launch(context.parts.copy_line, line, context.memory.lines.span(first, first + length))


def launch(context: Context, forward: Forward) -> None:
    """Enqueue what spoils and processes logits; a step without such rows enqueues nothing."""
    launch, parts, memory, view = context.compute.launch, context.parts, context.memory, forward.view
    k, vocab_size = context.spec.num_speculative_tokens, context.spec.vocab_size
    if forward.spoiled:
        start = memory.layout.spoiled_rows
        rows = memory.inputs.span(start, start + len(forward.spoiled))
        launch(parts.spoil_logits, rows, view.logits, (1 + k) * vocab_size)
    if not forward.processed:
        return
    start = memory.layout.processed_rows
    rows = memory.inputs.span(start, start + len(forward.processed))
    launch(
        parts.write_history,
        rows,
        view.state_slot,
        view.num_computed,
        view.query_start,
        view.num_scheduled,
        view.num_drafts,
        view.input_ids,
        memory.lines.all,
        memory.line_length,
        vocab_size,
    )
    launch(
        parts.process_logits,
        rows,
        view.state_slot,
        view.num_computed,
        view.num_scheduled,
        view.num_drafts,
        memory.lines.all,
        view.logits,
        memory.line_length,
        k,
        vocab_size,
    )
