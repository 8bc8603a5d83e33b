"""Persistent dense batch: which request sits in which row, and the host's mirrors of each row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workers.engine.request import Plan, PlanRow
from workers.kernels.sentinels import NO_PREVIOUS_ROW, UNKNOWN_TOKEN

Key = tuple[int, int]


@dataclass(slots=True, eq=False)
class Row:
    """One row: its request and epoch, and the host's mirrors.

    `num_computed` is optimistic from a launch until the step before it is corrected; `tokens` are those known when
    the row was added, `num_tokens_no_spec` counts those and every token sampled since, seen by the host or not.
    """

    key: Key
    plan: PlanRow
    num_computed: int
    num_tokens_no_spec: int
    tokens: list[int]
    blocks: list[int]

    def token(self, index: int) -> int:
        """Return a token of this row, or UNKNOWN_TOKEN."""
        return self.tokens[index] if index < len(self.tokens) else UNKNOWN_TOKEN


def tokens_of(planned: PlanRow) -> list[int]:
    """Return the tokens of a row that joins the batch: all of them, however few it computes in its first step."""
    return list(planned.request.tokens)


def previous_row(row: Row, previous: Mapping[Key, int]) -> int:
    """Return a request's row in the step before, or NO_PREVIOUS_ROW if it was not sampled there."""
    return previous.get(row.key, NO_PREVIOUS_ROW)


def permute_rows(rows: list[Row], order: Sequence[int]) -> list[Row]:
    """Permute rows; `order` has the old row of each new one."""
    return [rows[index] for index in order]


# The life of a row: a request that a step leaves out loses its row, and joins again in another one.
#
#   rows             a  b  c  d  e     of the step before
#   remove           a  .  c  .  e     the plan holds a, c, e and f
#   add              a  f  c  .  e     a request that joins takes the first hole
#   condense         a  f  c  e        the last row moves into the hole that is left: moves == [(3, 4)]
#   permute                            by an event alone
#   prev_positions   0 -1  2  4        where the device finds what the step before left for each row
#
# A row moves on the host while copies of the step before, in that step's order of rows, may still be in flight: their
# results are read through prev_positions, or through the rows that a Step keeps.
class InputBatch:
    """Rows 0..n-1 without holes between steps.

    `previous` maps each request that was sampled in the preceding non-empty step to its row there.
    """

    def __init__(
        self,
        tokens_of: Callable[[PlanRow], list[int]] = tokens_of,
        permute_rows: Callable[[list[Row], Sequence[int]], list[Row]] = permute_rows,
        previous_row: Callable[[Row, Mapping[Key, int]], int] = previous_row,
    ) -> None:
        self._tokens_of = tokens_of
        self._permute_rows = permute_rows
        self._previous_row = previous_row
        self.rows: list[Row] = []
        self.previous: dict[Key, int] = {}
        self.moves: Sequence[tuple[int, int]] = ()

    def update(self, plan: Plan, permute: Callable[[int], Sequence[int]] | None) -> None:
        """Bring the rows in line with a plan: remove, refresh, add into the smallest holes, condense, permute."""
        wanted = {(row.request.index, row.scheduled.epoch): row for row in plan.rows}
        assert len(wanted) == len(plan.rows), f"step {plan.step}: {len(plan.rows)} rows of {len(wanted)} requests"
        if permute is None and len(wanted) == len(self.rows) and all(row.key in wanted for row in self.rows):
            for row in self.rows:
                self._refresh(row, wanted[row.key])
            self.moves = ()
            return
        places: list[Row | None] = []
        for row in self.rows:
            planned = wanted.pop(row.key, None)
            places.append(row if planned is not None else None)
            if planned is not None:
                self._refresh(row, planned)
        was = {row.key: index for index, row in enumerate(self.rows)}
        self._add(places, wanted)
        rows = self._condense(places)
        if permute is not None and rows:
            rows = self._permute_rows(rows, permute(len(rows)))
        self.rows = rows
        assert len(rows) == len(plan.rows), f"step {plan.step}: {len(rows)} rows, {len(plan.rows)} were planned"
        self.moves = [
            (index, was[row.key]) for index, row in enumerate(rows) if row.key in was and was[row.key] != index
        ]

    @staticmethod
    def _refresh(row: Row, planned: PlanRow) -> None:
        was, now = row.plan.scheduled.step_in_epoch, planned.scheduled.step_in_epoch
        assert now == was + 1, f"request {planned.request.name}: step {now} of its epoch follows step {was}"
        row.plan = planned
        row.num_computed = planned.num_computed
        if planned.request.params.grammar:
            row.tokens[:] = planned.request.tokens
        row.num_tokens_no_spec = planned.num_tokens_no_spec
        if planned.scheduled.blocks.new:
            row.blocks.extend(planned.scheduled.blocks.new)

    def _add(self, places: list[Row | None], wanted: dict[Key, PlanRow]) -> None:
        for key, planned in wanted.items():
            request = planned.request
            tokens, num_no_spec = self._tokens_of(planned), planned.num_tokens_no_spec
            row = Row(key, planned, planned.num_computed, num_no_spec, tokens, list(request.blocks))
            if None in places:
                places[places.index(None)] = row
            else:
                places.append(row)

    @staticmethod
    def _condense(places: list[Row | None]) -> list[Row]:
        while None in places:
            hole = places.index(None)
            last = places.pop()
            if last is not None:
                assert hole < len(places), "a hole behind the last row"
                places[hole] = last
        return [row for row in places if row is not None]

    def prev_positions(self) -> tuple[int, ...]:
        """Return, for each row, its row in the previous step, or NO_PREVIOUS_ROW if it was not sampled there."""
        return tuple(self._previous_row(row, self.previous) for row in self.rows)

    def remember(self) -> None:
        """Keep which rows this step samples, for the next one; an empty step remembers none.

        A row that follows a grammar goes on from what the host knows.
        """
        previous: dict[Key, int] = {}
        for index, row in enumerate(self.rows):
            assert row.key not in previous, f"request {row.plan.request.name} has rows {previous[row.key]} and {index}"
            if not row.plan.discard and not row.plan.request.params.grammar:
                previous[row.key] = index
        self.previous = previous
