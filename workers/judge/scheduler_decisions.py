"""Check the plans of a scheduler without an observed model runner.

The scheduler is tested alone, or its engine's model runners are other processes.

Verifies:
- counts: the scheduler's computed tokens are the true ones plus at most the draft tokens in flight;
- block tables: the plans sent to a runner contain, for every token of a step, the block that the scheduler holds for
  it, and no block that another request holds, except a shared prefix;
- metrics count no more draft tokens than were verified;
- with a model runner, no token is sampled from a prefill chunk;
- nothing is held at the end.

Does not verify:
- model inputs;
- sampled tokens, which the test of a scheduler alone makes up;
- plans after the last result that was returned to the scheduler.
"""

from collections.abc import Iterator

from scenarios.spec import ENGINE
from workers.judge.history import History, Step
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.model_inputs import Steps, leaks_of, metrics_of, owners_of
from workers.record.evidence import Difference

PLANES = ("blocks", "books", "counts")


class SchedulerDecisions(HistoryJudge):
    """Judge of a scheduler: computed-token counts and sent block tables.

    `has_results`: a model runner returned the results.
    """

    def __init__(self, has_results: bool = False) -> None:
        self._has_results = has_results

    @classmethod
    def of(cls, case: Case) -> "SchedulerDecisions | None":
        """Return the judge; None for an engine that reports its model inputs, too, or a decision log."""
        return cls(has_results=True) if case.shows_plans and not case.shows_steps else None

    def compared(self, history: History) -> tuple[str, ...]:
        return PLANES if history.steps_of(ENGINE) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        history = end.history.engines[ENGINE]
        steps = Steps(history)
        for step in history.steps.values():
            if step.number <= history.num_processed:
                yield from _of_step(steps, step, history.sizes.block_size, self._has_results)
        yield from leaks_of(history)


def _of_step(steps: Steps, step: Step, size: int, has_results: bool) -> Iterator[Difference]:
    steps.begin(step)
    yield from steps.counts(step)
    owners = owners_of(step.plan.blocks)
    planned = zip(step.requests, step.plan.num_tokens, step.plan.planned_drafts, step.plan.told, strict=True)
    for request, count, num_drafts, table in planned:
        first = steps.scheduled(request, count, num_drafts)
        for index in range(first // size, -(-(first + count) // size)):
            block = table[index] if index < len(table) else None
            yield from steps.owner(step.number, request, max(first, index * size), block, owners)
    if has_results:
        yield from steps.results(step)
    yield from metrics_of(step)
    steps.advance(step)
