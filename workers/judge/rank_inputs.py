"""Check that all ranks of an engine run the same steps with the same model inputs.

Verifies:
- in each step all ranks compute the same batch: requests, token ids, positions, slot mapping, block tables, sequence
  lengths and draft tokens are those of rank 0;
- in each step all ranks sample the same tokens, and so accept the same draft tokens, if the engine reports the sampled
  tokens of each rank;
- no rank leaves out a step.

Does not verify:
- the inputs of rank 0 (`model_inputs` does);
- the calls of collectives: different calls stop the run at once, and a missing call leaves the ranks stuck.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from scenarios.spec import ENGINE
from workers.judge.history import History, Row, Step, rows_of
from workers.judge.judge import Case, End, HistoryJudge
from workers.judge.mismatches import mismatch
from workers.record.engine_records import RankInputs, RankProcessed
from workers.record.evidence import Difference, Fact, fact

PLANE = "ranks"
# What a rank's row must have in common with that of rank 0.
_COMPARED = ("request", "input_ids", "positions", "slots", "seq_len", "num_drafts", "table")


class RankInputsJudge(HistoryJudge):
    """Judge of an engine with `num_ranks` ranks."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks

    @classmethod
    def of(cls, case: Case) -> "RankInputsJudge | None":
        """Return the judge; None for an engine with one rank."""
        num_ranks = case.trace.spec.num_workers
        return cls(num_ranks) if num_ranks > 1 and case.shows_steps else None

    def compared(self, history: History) -> tuple[str, ...]:
        return (PLANE,) if any(isinstance(seen, RankInputs) for seen in history.records) else ()

    def differences(self, end: End) -> Iterator[Difference]:
        found: dict[int, dict[int, RankInputs]] = {}
        sampled: dict[int, list[RankProcessed]] = {}
        for seen in end.history.records:
            if isinstance(seen, RankInputs):
                found.setdefault(seen.step, {})[seen.values.rank] = seen
            elif isinstance(seen, RankProcessed):
                sampled.setdefault(seen.step, []).append(seen)
        for number, step in sorted(end.history.steps_of(ENGINE).items()):
            if step.inputs is not None:
                yield from self._of_step(step, found.get(number, {}))
            for processed in sampled.get(number, ()):
                yield from _of_sampled(step, processed)

    def _of_step(self, step: Step, found: Mapping[int, RankInputs]) -> Iterator[Difference]:
        for rank in range(1, self._num_ranks):
            if rank not in found:
                where = step.number, None
                yield mismatch(PLANE, f"rank_{rank}_step", None, where, fact("step_run"), fact("step_left_out"))
                continue
            for own, row in zip_longest(rows_of(found[rank]), step.rows):
                yield from _of_row(step.number, rank, own, row)


def _of_sampled(step: Step, processed: RankProcessed) -> Iterator[Difference]:
    """Yield the first difference between the sampled tokens of a rank and those of rank 0."""
    for request, tokens in zip(processed.requests, processed.values.sampled, strict=True):
        expected = step.sampled.get(request)
        if expected is not None and list(expected) != tokens:
            variable = f"rank_{processed.values.rank}_sampled"
            yield mismatch(PLANE, variable, request, (step.number, None), list(expected), tokens)
            return


def _of_row(step: int, rank: int, own: Row | None, row: Row | None) -> Iterator[Difference]:
    """Yield the first difference between a batch row of a rank and the same row of rank 0."""
    if own is None or row is None:
        request = row.request if row is not None else own.request if own is not None else None
        yield mismatch(PLANE, f"rank_{rank}_rows", request, (step, None), _described(row), _described(own))
        return
    for variable in _COMPARED:
        expected, actual = getattr(row, variable), getattr(own, variable)
        if expected != actual:
            yield mismatch(PLANE, f"rank_{rank}_{variable}", row.request, (step, row.first), expected, actual)
            return


def _described(row: Row | None) -> Fact:
    return fact("no_row") if row is None else fact("row_of", submit=row.request)
