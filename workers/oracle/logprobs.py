"""What logprobs the requests of a step must get, and when two count as the same.

Verifies: whose logprobs they are, their number, the ids and their order exactly; each logprob within TOLERANCE.
"""

from collections.abc import Sequence

from workers.oracle.truth import RowTruth

# An engine sums float32 exponentials of logits below 16: its error stays below 1e-5 for 65536 tokens.
TOLERANCE = 1e-4

Flat = tuple[int | float, ...]


def expected_logprobs(rows: Sequence[RowTruth], delivered: Sequence[tuple[int, ...]], mode: str) -> list[Flat] | None:
    """Return the logprobs of the tokens that each row delivers, or None if no row that samples wants any."""
    if not [row for row in rows if row.truth.num_logprobs and not row.discard]:
        return None
    found: list[Flat] = []
    for row, tokens in zip(rows, delivered, strict=True):
        truth = row.truth
        values: list[int | float] = []
        if truth.num_logprobs:
            for position in range(row.base, row.base + len(tokens)):
                values += row.tape.logprobs_after(position, truth.num_logprobs, mode)
        found.append(tuple(values))
    return found


def are_close(seen: Flat, wanted: Flat) -> bool:
    """Tell whether logprobs are the same: ids are integers and equal, the others close."""
    return len(seen) == len(wanted) and all(map(_is_close, seen, wanted))


def _is_close(seen: float, wanted: float) -> bool:
    return seen == wanted or (type(wanted) is float and abs(seen - wanted) <= TOLERANCE)
