"""Timelines of findings: drawn around the failure, and exported as traces for Perfetto."""

import base64
import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster.reports.page import timelines
from cluster.reports.page.findings import Finding
from cluster.reports.page.perfetto import perfetto_trace
from cluster.reports.page.timeline_picture import Picture, picture_of
from cluster.reports.page.timelines import draw_timelines
from scenarios import codec
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged, page_of
from workers.lanes.timeline import Timeline
from workers.record.evidence import Site
from workers.record.verdict import NO_STATS, Crashed, Diverged, Judgement, detected_race
from workers.run.timeline import record_timeline
from workers.targets.target import RunConfig

REGRESSION = Path(__file__).parents[4] / "scenarios/regressions/vllm-38556-accepted-counts.yaml"


@cache
def moved_counts() -> tuple[Judgement, Timeline]:
    """Return the judgement and the timeline of a trace with a race."""
    trace = codec.load(REGRESSION).explicit()
    verdict, timeline = record_timeline(trace)
    return Judgement(verdict=verdict, trace=trace, schedules=1), timeline


def picture() -> Picture:
    """Return the picture of this timeline."""
    judgement, timeline = moved_counts()
    assert isinstance(judgement.verdict, Diverged)
    return picture_of(timeline, judgement.verdict.difference, judgement.verdict.difference.missing_order)


def test_the_missing_order_is_an_arrow_between_the_two_tasks() -> None:
    drawn = picture()
    (arrow,) = [arrow for arrow in drawn.arrows if arrow.is_missing]
    assert arrow.title.startswith("nothing orders the write by d2h_counts:copy_accepted@5")
    first, second = [box for box in drawn.boxes if box.role == "wrong"]
    assert {(box.lane, box.task.op) for box in (first, second)} == {("host", "read"), ("d2h_counts", "copy_accepted")}
    assert min(first.y, second.y) <= arrow.y <= max(first.y, second.y) + drawn.box_height


def test_a_picture_is_small_and_says_what_it_leaves_out() -> None:
    drawn, tasks = picture(), moved_counts()[1].tasks
    left_out = [int(mark.text.removesuffix(" more")) for mark in drawn.marks if mark.is_gap]
    assert sum(left_out) + len(drawn.boxes) == len(tasks)
    assert len(drawn.boxes) <= 120
    assert all(0 <= box.y <= drawn.height - drawn.box_height for box in drawn.boxes)
    assert [box.y for box in drawn.boxes] == sorted({box.y for box in drawn.boxes})
    assert 0 <= drawn.focus < drawn.height


def test_a_box_shows_op_step_buffers_and_what_it_waited_for() -> None:
    (box,) = [box for box in picture().boxes if box.role == "wrong" and box.lane == "d2h_counts"]
    assert box.detail[0] == "d2h_counts: copy_accepted, step 5"
    assert "writes accepted_counts:0-2" in box.detail
    assert box.queue is not None
    lines = [line for box in picture().boxes if box.lane == "compute" for line in box.detail]
    assert "after inputs_ready: h2d copy_inputs of step 6" in lines


def trace_of(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the events of the exported trace."""
    document = json.loads(perfetto_trace(timeline, "a finding", detected_race(moved_counts()[0].verdict)))
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_the_exported_trace_is_chrome_json_with_a_slice_for_each_task() -> None:
    timeline = moved_counts()[1]
    events = trace_of(timeline)
    phases = Counter(event["ph"] for event in events)
    assert phases["X"] == sum(task.ran is not None for task in timeline.tasks)
    assert phases["s"] == phases["f"] > 0
    assert phases["i"] == 1
    for event in events:
        needed = {"X": {"ts", "dur", "tid", "name"}, "s": {"id", "ts", "tid"}, "f": {"id", "ts", "tid", "bp"}}
        assert {"pid", "name", *needed.get(event["ph"], set())} <= event.keys()
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["host", "compute", "h2d", "d2h_output", "d2h_counts"]


def test_slices_of_a_lane_do_not_overlap_and_every_flow_begins_and_ends_in_one() -> None:
    events = trace_of(moved_counts()[1])
    slices = [(event["tid"], event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X"]
    for (lane, _, end), (other, begin, _) in zip(sorted(slices), sorted(slices)[1:], strict=False):
        assert lane != other or end <= begin
    flows: dict[int, dict[str, int]] = {}
    for event in events:
        if event["ph"] in "sf":
            assert any(event["tid"] == lane and low <= event["ts"] <= high for lane, low, high in slices)
            flows.setdefault(event["id"], {})[event["ph"]] = event["ts"]
    assert all(ends["s"] < ends["f"] for ends in flows.values())
    assert [event["name"] for event in events if event.get("cat") == "missing" and event["ph"] == "s"] == [
        "MISSING ORDER"
    ]


def finding(judgement: Judgement, folder: Path, **changes: Any) -> Finding:
    """Return a finding of a campaign in a folder."""
    config = changes.get("config", RunConfig())
    return Finding(str(changes.get("bug", "a bug")), judgement, config, None, folder)


def test_a_finding_that_cannot_be_replayed_says_why(tmp_path: Path) -> None:
    judgement, _ = moved_counts()
    killer = Crashed(stats=NO_STATS, error="died", where=Site(function="worker process"))
    agrees = judgement.model_copy(update={"trace": judgement.trace.model_copy(update={"faults": ()})})
    findings = [
        finding(judgement.model_copy(update={"verdict": killer}), tmp_path, bug="a"),
        finding(judgement, tmp_path, bug="b", config=RunConfig(device="cuda")),
        finding(agrees, tmp_path, bug="c"),
        finding(judgement, tmp_path, bug="d"),
    ]
    drawn = draw_timelines(findings, tmp_path, 3)
    assert [each.picture for each in drawn.values()] == [None] * 4
    assert [each.note for each in drawn.values()] == [
        "no timeline: this trace kills the process that runs it",
        "no timeline: lanes are recorded only on the simulated device",
        "no timeline: with the present code the verdict on this trace is agreed",
        "no timeline: 3 are drawn; `specstorm report --timelines N` draws more",
    ]
    assert list(tmp_path.iterdir()) == []


def test_lanes_of_the_missing_order_are_the_first_columns() -> None:
    drawn, timeline = picture(), moved_counts()[1]
    first = sorted(timeline.lanes, key=lambda lane: drawn.columns[timeline.lanes.index(lane)])
    assert first == ["host", "d2h_counts", "compute", "h2d", "d2h_output"]
    left = {box.lane: box.x for box in drawn.boxes}
    assert all(0 < left[lane] - drawn.columns[timeline.lanes.index(lane)] < 20 for lane in left)


def test_label_of_the_missing_order_covers_no_task() -> None:
    drawn = picture()
    (arrow,) = [arrow for arrow in drawn.arrows if arrow.is_missing]
    assert drawn.boxes, "the picture has tasks"
    for box in drawn.boxes:
        is_beside = box.x + drawn.box_width <= arrow.x - 34 or box.x >= arrow.x + 34
        assert is_beside or box.y + drawn.box_height <= arrow.y - 9 or box.y >= arrow.y + 9


def test_engine_without_recorded_tasks_has_no_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judgement, timeline = moved_counts()
    empty = Timeline(timeline.lanes, (), ())
    monkeypatch.setattr(timelines, "record_timeline", lambda *_: (judgement.verdict, empty))
    (drawn,) = draw_timelines([finding(judgement, tmp_path)], tmp_path, 1).values()
    assert (drawn.picture, drawn.note) == (None, "no timeline: engine specstorm records no tasks of its lanes")
    assert list(tmp_path.iterdir()) == []


def test_trace_is_a_download_of_the_page_unless_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement, _ = moved_counts()
    folder = campaign_of(tmp_path, {"a": judgement})
    bug = "lanes d2h_counts before host"
    for bound, is_carried in ((timelines.DOWNLOAD_BYTES_MAX, True), (100, False)):
        monkeypatch.setattr(timelines, "DOWNLOAD_BYTES_MAX", bound)
        drawn = draw_timelines([finding(judgement, folder, bug=bug)], folder, 1)
        page = Page(page_of(folder, timelines=drawn))
        links = [each.attributes for each in page.all("a") if "download" in each.attributes]
        (file,) = (folder / "timelines").iterdir()
        assert bool(links) == is_carried
        for link in links:
            assert link["download"] == f"{file.name}.gz"
            kind, _, packed = str(link["href"]).partition(",")
            assert kind == "data:application/gzip;base64"
            assert gzip.decompress(base64.b64decode(packed)) == file.read_bytes()
        said = [each.text for each in page.all("code") if each.text == f"timelines/{file.name}"]
        assert bool(said) != is_carried


def test_all_downloads_of_a_page_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judgement, _ = moved_counts()
    findings = [finding(judgement, tmp_path, bug=f"bug {number}") for number in range(3)]
    sizes = [len(each.packed) for each in draw_timelines(findings, tmp_path, 3).values()]
    monkeypatch.setattr(timelines, "DOWNLOADS_BYTES_MAX", sum(sizes[:2]))
    drawn = draw_timelines(findings, tmp_path, 3)
    assert [each.is_carried for each in drawn.values()] == [True, True, False]


def test_the_page_shows_the_timeline(tmp_path: Path) -> None:
    judgement, _ = moved_counts()
    folder = campaign_of(tmp_path, {"a": judgement, "bb": judged("crash")})
    assert isinstance(judgement.verdict, Diverged)
    drawn = draw_timelines([finding(judgement, folder, bug="lanes d2h_counts before host")], folder, 1)
    page = Page(page_of(folder, timelines=drawn))
    tasks = [element for element in page.all("g") if "task" in str(element.attributes.get("class")).split()]
    assert len(tasks) == len(picture().boxes)
    assert any("copy_accepted, step 5" in str(element.attributes["data-detail"]) for element in tasks)
