"""The order of rows in a batch: rows stay where they are, unless one goes or an event permutes them."""

from collections.abc import Sequence

from scenarios.draw import draw
from scenarios.events import Reorder
from workers.record.log import ScheduledRow


class RowOrder:
    """Which request, in which epoch, is in which row."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rows: list[tuple[int, int]] = []

    def update(self, scheduled: Sequence[ScheduledRow], tick: int, reorder: Reorder | None) -> tuple[int, ...]:
        """Return the requests of a step in row order: those that join fill the first holes, the last rows the rest."""
        joining = dict.fromkeys((row.request, row.epoch) for row in scheduled)
        places: list[tuple[int, int] | None] = []
        for key in self._rows:
            stays = key in joining
            places.append(key if stays else None)
            if stays:
                del joining[key]
        for key in joining:
            if None in places:
                places[places.index(None)] = key
            else:
                places.append(key)
        while None in places:
            last = places.pop()
            if last is not None:
                places[places.index(None)] = last
        rows = [key for key in places if key is not None]
        self._rows = self._permuted(rows, tick, reorder) if reorder is not None else rows
        return tuple(request for request, _ in self._rows)

    def _permuted(self, rows: list[tuple[int, int]], tick: int, reorder: Reorder) -> list[tuple[int, int]]:
        match reorder.how:
            case "reverse":
                return rows[::-1]
            case "rotate":
                return rows[1:] + rows[:1]
            case "shuffle":
                key = str(tick)
                places = sorted(range(len(rows)), key=lambda row: draw(self._seed, "shuffle", key, row))
                return [rows[place] for place in places]
