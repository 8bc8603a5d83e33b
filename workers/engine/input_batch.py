"""Persistent batch: the row of each request, and the host's token counts of each row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workers.engine.request import Plan, PlanRow
from workers.kernels.sentinels import NO_PREVIOUS_ROW, UNKNOWN_TOKEN

Key = tuple[int, int]


@dataclass(slots=True, eq=False)
class Row:
    """One batch row on the host: key (request, epoch), scheduled tokens, token counts, blocks.

    `num_computed` is optimistic from a launch until the previous step has been corrected. `tokens` are those known when
    the row was added; `num_tokens_no_spec` counts these and every token sampled since, whether or not the host has seen
    it.
    """

    key: Key
    plan: PlanRow
    num_computed: int
    num_tokens_no_spec: int
    tokens: list[int]
    blocks: list[int]

    def token(self, index: int) -> int:
        """Return the token at an index; UNKNOWN_TOKEN if the host has not seen it."""
        return self.tokens[index] if index < len(self.tokens) else UNKNOWN_TOKEN


def initial_tokens(planned: PlanRow) -> list[int]:
    """Return the tokens for a new batch row: prompt and output tokens known to the host."""
    return list(planned.request.tokens)


def previous_row(row: Row, previous: Mapping[Key, int]) -> int:
    """Return the request's row in the previous step; NO_PREVIOUS_ROW if it sampled nothing."""
    return previous.get(row.key, NO_PREVIOUS_ROW)


def permute_rows(rows: list[Row], order: Sequence[int]) -> list[Row]:
    """Permute the batch rows; `order` has the old index of each new row."""
    return [rows[index] for index in order]


# The life of a row: a request that a step leaves out loses its row, and later joins in another row.
#
#   rows             a  b  c  d  e    of the previous step
#   remove           a  .  c  .  e    the plan has a, c, e and f
#   add              a  f  c  .  e    a request that joins takes the first hole
#   condense         a  f  c  e       the last row moves into the remaining hole: moves == [(3, 4)]
#   permute                           only by an event
#   prev_positions   0 -1  2  4       where the device finds each row's results of the previous step
#
# A row moves on the host while copies of the previous step, in that step's row order, may still be in flight: their
# results are read through prev_positions, or through the rows that a Step keeps.
class InputBatch:
    """The persistent batch: rows 0 to n - 1, with no empty row between steps.

    `previous` maps each request that was sampled in the last non-empty step to its row there.
    """

    def __init__(
        self,
        initial_tokens: Callable[[PlanRow], list[int]] = initial_tokens,
        permute_rows: Callable[[list[Row], Sequence[int]], list[Row]] = permute_rows,
        previous_row: Callable[[Row, Mapping[Key, int]], int] = previous_row,
    ) -> None:
        self._tokens_of = initial_tokens
        self._permute_rows = permute_rows
        self._previous_row = previous_row
        self.rows: list[Row] = []
        self.previous: dict[Key, int] = {}
        self.moves: Sequence[tuple[int, int]] = ()

    def update(self, plan: Plan, permute: Callable[[int], Sequence[int]] | None) -> None:
        """Update the rows to a step: remove, refresh, fill empty rows, condense, permute."""
        wanted = {(row.request.index, row.scheduled.epoch): row for row in plan.rows}
        assert len(wanted) == len(plan.rows), f"step {plan.step}: {len(plan.rows)} rows for {len(wanted)} requests"
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
        assert len(rows) == len(plan.rows), f"step {plan.step}: {len(rows)} rows, but the plan has {len(plan.rows)}"
        self.moves = [
            (index, was[row.key]) for index, row in enumerate(rows) if row.key in was and was[row.key] != index
        ]

    @staticmethod
    def _refresh(row: Row, planned: PlanRow) -> None:
        was, now = row.plan.scheduled.step_in_epoch, planned.scheduled.step_in_epoch
        assert now == was + 1, f"request {planned.request.name}: step {now} of its epoch was planned after step {was}"
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
                assert hole < len(places), "a hole after the last row"
                places[hole] = last
        return [row for row in places if row is not None]

    def prev_positions(self) -> tuple[int, ...]:
        """Return each row's index in the previous step (NO_PREVIOUS_ROW if not sampled)."""
        return tuple(self._previous_row(row, self.previous) for row in self.rows)

    def remember(self) -> None:
        """Store the index of each row that this step samples, for the next step.

        A grammar row is left out, because it continues from tokens that the host knows.
        """
        previous: dict[Key, int] = {}
        for index, row in enumerate(self.rows):
            assert row.key not in previous, f"request {row.plan.request.name} has rows {previous[row.key]} and {index}"
            if not row.plan.discard and not row.plan.request.params.grammar:
                previous[row.key] = index
        self.previous = previous
