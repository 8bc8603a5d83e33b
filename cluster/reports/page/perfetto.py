"""Timeline as a trace in the Chrome JSON format, for ui.perfetto.dev.

A task lasts one unit of the timeline's logical time. An order is a flow arrow, and so is a missing order.
"""

import json
from collections.abc import Iterator
from typing import Any

from cluster.reports.page.timeline_picture import time_of
from scenarios.visible import visible_data
from workers.lanes.timeline import Timeline
from workers.record.evidence import MissingOrder
from workers.record.words import missing_order_text

_UNIT = 10
_PROCESS = 1


def perfetto_trace(timeline: Timeline, name: str, order_missing: MissingOrder | None) -> str:
    """Return the trace of a run as JSON text."""
    what = missing_order_text(order_missing) if order_missing is not None else "missing order"
    events = [*_lanes(timeline, name), *_slices(timeline), *_orders(timeline, what)]
    return json.dumps(visible_data({"displayTimeUnit": "ns", "traceEvents": events}), separators=(",", ":"))


def _lanes(timeline: Timeline, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": name}}
    for index, lane in enumerate(timeline.lanes):
        yield {"ph": "M", "pid": _PROCESS, "tid": index, "name": "thread_name", "args": {"name": lane}}
        yield {"ph": "M", "pid": _PROCESS, "tid": index, "name": "thread_sort_index", "args": {"sort_index": index}}


def _slices(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for task in timeline.tasks:
        if task.ran is None:
            continue
        arguments: dict[str, Any] = {
            "step": task.step,
            "reads": [*map(str, task.reads)],
            "writes": [*map(str, task.writes)],
        }
        if task.lane:
            arguments["launched_at"] = task.enqueued * _UNIT
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": task.lane,
            "ts": task.ran * _UNIT,
            "dur": _UNIT - 1,
            "name": f"{task.op} {(*task.reads, *task.writes)[0]}" if task.op in ("read", "write") else task.op,
            "cat": f"step {task.step}",
            "args": arguments,
        }


def _orders(timeline: Timeline, what: str) -> Iterator[dict[str, Any]]:
    orders = [(flow.before, flow.after, flow.event, "order") for flow in timeline.flows]
    missing = timeline.missing
    if missing is not None:
        orders.append((missing.first, missing.second, "MISSING ORDER", "missing"))
    for number, (before, after, event, kind) in enumerate(orders, 1):
        ends = [timeline.tasks[before], timeline.tasks[after]]
        if any(task.ran is None for task in ends):
            continue
        # Arrows run forward in time: with a missing order, the second task may have run before the first.
        ends.sort(key=time_of)
        common = {"pid": _PROCESS, "id": number, "name": event, "cat": kind}
        yield {"ph": "s", "tid": ends[0].lane, "ts": time_of(ends[0]) * _UNIT + _UNIT // 2, **common}
        yield {"ph": "f", "bp": "e", "tid": ends[1].lane, "ts": time_of(ends[1]) * _UNIT + 1, **common}
    if missing is not None and (at := timeline.tasks[missing.second]).ran is not None:
        place = {"pid": _PROCESS, "tid": at.lane, "ts": at.ran * _UNIT}
        yield {"ph": "i", "s": "p", "name": what, "cat": "missing", **place}
