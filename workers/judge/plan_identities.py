"""Identities of a scheduler's plans, where no runner carries them out: in a test of the scheduler alone.

Verifies: counts of the scheduler that are the true ones, or above them by drafts in flight; that a runner which keeps
to what it is told has a block for every token of a step, the one that the scheduler holds for it, and none that is
another's but for a prefix that both have; that no more drafts are counted for operators than were verified; that
nothing is left at the end.
Does not verify: what a model is given, or samples: a test makes results up; what is planned once the last is back.
"""

from collections.abc import Iterator

from workers.judge.judge import End
from workers.judge.step_identities import Step, StepIdentities, operators_of, owners_of
from workers.record.evidence import Difference

PLANES = ("blocks", "books", "counts")


class PlanIdentities(StepIdentities):
    """Judge of the observations of one scheduler: of each plan also how many tokens it has, and blocks as it tells."""

    @property
    def planes(self) -> tuple[str, ...]:
        return PLANES if self._steps else ()

    def at_end(self, end: End) -> Difference | None:
        """Return the first difference, of steps up to the one behind the last whose results are back."""
        known = [number for number in sorted(self._steps) if number <= self._num_processed]
        found = (found for number in known for found in self._of_step(number, self._steps[number]))
        return next(found, next(iter(self._loose), None))

    def _of_step(self, number: int, step: Step) -> Iterator[Difference]:
        self._begin(number, step)
        yield from self._counts(number, step)
        values = step.planned.values
        owners = owners_of(values["blocks"])
        told = zip(step.planned.requests, values["num_tokens"], values["planned_drafts"], values["told"], strict=True)
        for request, count, num_drafts, table in told:
            stay = self._residencies[request]
            stay.num_scheduled, stay.num_drafts = count, num_drafts
            first, size = stay.computed, self._block_size
            for index in range(first // size, -(-(first + count) // size)):
                block = table[index] if index < len(table) else None
                yield from self._owner(number, request, max(first, index * size), block, owners)
        yield from operators_of(number, step)
        self._go_on(number, step)
