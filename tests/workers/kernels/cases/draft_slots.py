"""Test inputs of `draft_slots`: the drafter gets back all, all but one, or no draft tokens."""

from collections.abc import Iterator

from tests.workers.kernels.cases.batch import integers
from tests.workers.kernels.cases.drafters import drafting, made
from workers.kernels.draft_slots.definition import DraftSlots


def cases() -> Iterator[DraftSlots]:
    """Yield every batch; in some, draft tokens exceed the model's length or a row's blocks."""
    for batch, num_proposed in drafting():
        longest = int((batch.num_computed + batch.num_scheduled).max())
        for count, behind in ((num_proposed, 1), (batch.k, 3), (min(batch.k, 1), 1)):
            mapping = integers(batch.num_rows * batch.k)
            yield made(DraftSlots, batch, count, draft_slots=mapping, max_model_len=longest + behind)
