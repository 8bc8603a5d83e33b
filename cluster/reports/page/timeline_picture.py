"""Picture of a timeline around a failure: lanes are columns, time runs downwards.

Rows far from the failure are left out and counted; the Perfetto trace has the whole timeline.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workers.lanes.timeline import Flow, Task, Timeline, Use
from workers.record.evidence import HOST, Access, Difference, MissingOrder
from workers.record.words import missing_order_text

_NEAR = 7
_ROWS_MAX = 120
_GUTTER, _COLUMN, _ROW, _HEAD, _PAD = 54, 168, 22, 6, 6
# Width of the arrow of a missing order between its two lanes.
_ARROW = 36
_TEXT_MAX = 21
_NAMED_MAX = 12
_GAP_MIN = 4
_VIEW = 480
# Size of the label of a missing order; it is moved aside by its width.
_CHIP_WIDTH, _CHIP_HEIGHT = 68, 9


@dataclass(frozen=True, slots=True)
class Box:
    """A task as drawn; `role` is wrong, writer or plain, `queue` the y at which it was launched."""

    task: Task
    lane: str
    label: str
    detail: tuple[str, ...]
    role: str
    x: int
    y: int
    queue: int | None


@dataclass(frozen=True, slots=True)
class Arrow:
    """An order between two drawn tasks, as an SVG path; a missing order has a label."""

    path: str
    title: str
    is_missing: bool
    x: int = 0
    y: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across the picture: the start of a step, or the number of omitted rows."""

    y: int
    text: str
    is_gap: bool


@dataclass(slots=True)
class Picture:
    """All parts of the drawing in pixels."""

    lanes: Sequence[str]
    columns: Sequence[int]
    width: int
    height: int = 0
    column_width: int = _COLUMN
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    summary: str = ""
    box_width: int = _COLUMN - 2 * _PAD
    box_height: int = _ROW - 4

    @property
    def focus(self) -> int:
        """Return where the picture is scrolled to at first."""
        for role in ("wrong", "writer"):
            tops = [box.y for box in self.boxes if box.role == role]
            if tops:
                return max(0, min(min(tops) - 2 * _ROW, (min(tops) + max(tops) - _VIEW) // 2))
        return self.height


def picture_of(timeline: Timeline, difference: Difference | None, order_missing: MissingOrder | None) -> Picture:
    """Return the picture of a timeline around its missing order, else its first difference."""
    what = missing_order_text(order_missing) if order_missing is not None else "missing order"
    order = sorted((task for task in timeline.tasks if task.ran is not None), key=time_of)
    order += [task for task in timeline.tasks if task.ran is None]
    roles = _roles(timeline, difference)
    rows = _rows(order, _centre_rows(order, timeline, roles, difference))
    columns = _columns(timeline, roles)
    picture = Picture(timeline.lanes, columns, max(columns) + _COLUMN)
    waits: dict[int, list[Flow]] = {}
    for flow in timeline.flows:
        waits.setdefault(flow.after, []).append(flow)
    tops = _draw_boxes(picture, timeline, rows, roles, waits)
    picture.arrows = [arrow for flow in timeline.flows for arrow in _arrow(flow, timeline, tops, columns)]
    missing = timeline.missing
    if missing is not None and missing.first in tops and missing.second in tops:
        first, second = timeline.tasks[missing.first], timeline.tasks[missing.second]
        y = (tops[first.index] + tops[second.index] + _ROW) // 2
        x = _free_x((columns[first.lane] + columns[second.lane] + _COLUMN) // 2, y, picture)
        picture.arrows.append(Arrow(_path(first, second, tops, columns), what, True, x, y))
    shown = f"{len(picture.boxes)} of {len(order)} tasks"
    picture.summary = f"{shown} on {len(timeline.lanes)} lanes" + (f"; {what}" if missing is not None else "")
    return picture


def _free_x(x: int, y: int, picture: Picture) -> int:
    """Return an x near `x` at which a label at height `y` covers no task."""
    boxes = [box for box in picture.boxes if box.y - _CHIP_HEIGHT < y < box.y + picture.box_height + _CHIP_HEIGHT]
    free = [
        x + moved
        for moved in (0, _CHIP_WIDTH, -_CHIP_WIDTH)
        if not any(box.x - _CHIP_WIDTH // 2 < x + moved < box.x + picture.box_width + _CHIP_WIDTH // 2 for box in boxes)
    ]
    return free[0] if free else x


def _columns(timeline: Timeline, roles: Mapping[int, str]) -> list[int]:
    """Return the left edge of each lane's column.

    The lanes of the missing order are first, so that a narrow screen shows both, with room for its arrow between them.
    """
    first = {timeline.tasks[index].lane for index, role in roles.items() if role == "wrong"}
    order = sorted(range(len(timeline.lanes)), key=lambda lane: (lane not in first, lane))
    room = _ARROW if len(first) > 1 else 0
    places = [order.index(lane) for lane in range(len(timeline.lanes))]
    return [_GUTTER + place * _COLUMN + (room if place else 0) for place in places]


def time_of(task: Task) -> int:
    """Return the position of an executed task in the order of execution."""
    assert task.ran is not None, "it has run"
    return task.ran


def _roles(timeline: Timeline, difference: Difference | None) -> dict[int, str]:
    """Return the roles of tasks: unordered ones, and last writers of a wrong value."""
    roles: dict[int, str] = {}
    for writer in difference.writers if difference is not None else ():
        for task in reversed(timeline.tasks):
            if _made_access(writer, task, timeline):
                roles[task.index] = "writer"
                break
    if timeline.missing is not None:
        roles |= dict.fromkeys((timeline.missing.first, timeline.missing.second), "wrong")
    return roles


def _made_access(writer: Access, task: Task, timeline: Timeline) -> bool:
    """Return whether a task made the write access `writer` of the wrong value."""
    if task.step != writer.step or timeline.lanes[task.lane] != writer.lane:
        return False
    return writer.op == task.op or (writer.lane == HOST and writer.op in [f"write {use.buffer}" for use in task.writes])


def _centre_rows(
    order: Sequence[Task], timeline: Timeline, roles: dict[int, str], difference: Difference | None
) -> Iterator[int]:
    """Yield the rows to show with their neighbours: race, last writers, failing step."""
    missing = timeline.missing
    step = difference.step if difference is not None and difference.step >= 0 else None
    is_empty = not roles
    for row, task in enumerate(order):
        of_step = step is not None and task.step == step and (missing is None or task.op == "prepare_inputs")
        if task.index in roles or of_step or task.ran is None:
            yield row
            is_empty = False
    if is_empty:
        yield from range(max(0, len(order) - _NEAR), len(order))


def _rows(order: Sequence[Task], places: Iterator[int]) -> list[Task | int]:
    """Return the tasks to draw, and how many tasks are left out between them.

    Only the last tasks if there are too many.
    """
    wanted = sorted({near for at in places for near in range(at - _NEAR, at + _NEAR + 1) if 0 <= near < len(order)})
    rows: list[Task | int] = []
    before = -1
    for at in wanted[-_ROWS_MAX:]:
        gap = order[before + 1 : at]
        rows += gap if len(gap) < _GAP_MIN else [len(gap)]
        rows.append(order[at])
        before = at
    if before < len(order) - 1:
        rows.append(len(order) - 1 - before)
    return rows


def _draw_boxes(
    picture: Picture,
    timeline: Timeline,
    rows: Sequence[Task | int],
    roles: dict[int, str],
    waits: dict[int, list[Flow]],
) -> dict[int, int]:
    """Draw a row for each task and each gap; return the top of each task."""
    tops: dict[int, int] = {}
    times: dict[int, int] = {}
    y, step = _HEAD, -1
    for row in rows:
        if isinstance(row, int):
            picture.marks.append(Mark(y, f"{row} more", True))
            y += _ROW
            continue
        if row.step > step:
            step = row.step
            picture.marks.append(Mark(y, f"step {step}", False))
        tops[row.index] = y
        if row.ran is not None:
            times[row.ran] = y
        launched = max((top for time, top in times.items() if time <= row.enqueued), default=_HEAD)
        queue = launched if row.lane and y - launched > 2 * _ROW else None
        lane = timeline.lanes[row.lane]
        label = _label(row, row.step != step)
        x = picture.columns[row.lane] + _PAD
        detail = tuple(_detail(row, lane, timeline, waits.get(row.index, ())))
        role = roles.get(row.index, "plain")
        picture.boxes.append(Box(row, lane, label, detail, role, x=x, y=y, queue=queue))
        y += _ROW
    picture.height = y + _PAD
    return tops


def _label(task: Task, is_behind: bool) -> str:
    """Return a box's label: op or host access, with the step if it is an earlier one."""
    uses = (*task.reads, *task.writes)
    name = task.op if task.lane or not uses else f"{task.op} {uses[0].buffer}"
    step = f" @{task.step}" if is_behind else ""
    room = _TEXT_MAX - len(step)
    return (name if len(name) <= room else name[: room - 1] + "…") + step


def _detail(task: Task, lane: str, timeline: Timeline, waits: Sequence[Flow]) -> Iterator[str]:
    """Yield lines on a drawn task: step, memory accesses, waits, and times."""
    yield f"{lane}: {task.op}, step {task.step}"
    if task.reads:
        yield f"reads {_listed(task.reads)}"
    if task.writes:
        yield f"writes {_listed(task.writes)}"
    for flow in waits:
        before = timeline.tasks[flow.before]
        yield f"after {flow.event}: {timeline.lanes[before.lane]} {before.op} of step {before.step}"
    if task.ran is None:
        yield f"launched at {task.enqueued}, never ran"
    elif task.lane:
        yield f"launched at {task.enqueued}, ran at {task.ran}"
    else:
        yield f"at {task.ran}"


def _listed(uses: Sequence[Use]) -> str:
    more = f" and {len(uses) - _NAMED_MAX} more" if len(uses) > _NAMED_MAX else ""
    return ", ".join(map(str, uses[:_NAMED_MAX])) + more


def _arrow(flow: Flow, timeline: Timeline, tops: dict[int, int], columns: Sequence[int]) -> Iterator[Arrow]:
    """Yield the arrow of an order between two lanes, if both ends are drawn."""
    before, after = timeline.tasks[flow.before], timeline.tasks[flow.after]
    if flow.before in tops and flow.after in tops and before.lane != after.lane:
        yield Arrow(_path(before, after, tops, columns), f"{flow.event}: {before.op} before {after.op}", False)


def _path(before: Task, after: Task, tops: dict[int, int], columns: Sequence[int]) -> str:
    """Return a curve from the side of one box to the side of another."""
    leftwards = columns[after.lane] < columns[before.lane]
    start = columns[before.lane] + (_PAD if leftwards else _COLUMN - _PAD)
    end = columns[after.lane] + (_COLUMN - _PAD if leftwards else _PAD)
    if before.lane == after.lane:
        end = start
    middle = _ROW // 2 - 2
    y0, y1 = tops[before.index] + middle, tops[after.index] + middle
    bend = (end - start) // 2 if before.lane != after.lane else -40
    back = -bend if before.lane != after.lane else bend
    return f"M{start} {y0}C{start + bend} {y0} {end + back} {y1} {end} {y1}"
