"""Broadcast of draft tokens to the other pipeline ranks, without a race that does no harm.

The last rank reads the draft tokens of a step's requests on a stream of its own, while later steps write the rows of
others. A request whose draft tokens are needed is in no step until all ranks have received them. Rows that a later step
does write are those of prefill chunks and of ended requests: they are sent, and the receiver drops them. So this read
is not compared with later writes. Its values are judged where rank 0 uses them.
"""

from functools import wraps
from typing import Any

import torch

from workers.simulated_torch.device import activate


class RowsAsTheyAre(torch.Tensor):
    """Tensor [rows, ...] that is read by row numbers; the device does not compare the read with writes."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __getitem__(self, rows: Any) -> torch.Tensor:
        plain = self.as_subclass(torch.Tensor)
        whole, found = activate().host_view(plain), torch.empty_like(plain[: len(rows)])

        def gather(numbers: torch.Tensor, target: torch.Tensor) -> None:
            target.copy_(whole[numbers.long()])

        activate().enqueue("index", gather, (rows,), (found,))
        return found


def reading_rows_as_they_are(before: Any) -> Any:
    """Return `PPHandler.broadcast_drafts`, which reads the draft tokens without a comparison with later writes."""

    @wraps(before)
    def broadcast_drafts(self: Any, draft_tokens: torch.Tensor, input_batch: Any) -> None:
        before(self, draft_tokens.as_subclass(RowsAsTheyAre), input_batch)

    return broadcast_drafts
