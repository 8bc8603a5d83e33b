"""Timelines of findings, drawn and written as Perfetto traces.

Each trace is replayed in this process.

The page includes compressed copies of the traces, so that they are not lost when it is sent to others.
"""

import gzip
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.dispatch.inside import write_inside
from cluster.reports.page.findings import Finding
from cluster.reports.page.perfetto import perfetto_trace
from cluster.reports.page.timeline_picture import Picture, picture_of
from cluster.storage.hunts import kills_worker
from scenarios.limits import over_limits
from scenarios.trace import problems
from workers.faults.registry import FAULTS
from workers.record.verdict import detected_race
from workers.run.timeline import has_timeline, record_timeline
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import known_engines
from workers.targets.target import DeviceError

FOLDER = "timelines"
# Limits of compressed traces in the page: of one trace, and of all.
DOWNLOAD_BYTES_MAX, DOWNLOADS_BYTES_MAX = 256 << 10, 4 << 20


@dataclass(frozen=True, slots=True)
class TimelinePicture:
    """Timeline of a finding: its picture, and its trace for Perfetto.

    Without a timeline, `note` has the reason.

    The trace is in a file next to the page, and compressed in `download` (base64 of gzip) unless that is too large.
    """

    picture: Picture | None = None
    file: str | None = None
    packed: bytes = b""
    is_carried: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        """Return the name of the trace without folder and ending."""
        return Path(self.file or "").stem

    @property
    def download(self) -> str:
        """Return the compressed trace for a link; "" if the page does not include it."""
        return b64encode(self.packed).decode() if self.is_carried else ""

    @property
    def kilobytes(self) -> int:
        """Return the size of the compressed trace in kB, rounded up."""
        return -(-len(self.packed) // 1000)


def draw_timelines(findings: Sequence[Finding], folder: Path, count: int) -> dict[str, TimelinePicture]:
    """Replay the first findings; write their traces to a subfolder.

    Return the drawings by bug.
    """
    drawn = {finding.bug: _draw(finding, folder) for finding in findings[:count]}
    room = DOWNLOADS_BYTES_MAX
    for bug, each in drawn.items():
        size = len(each.packed)
        if 0 < size <= min(room, DOWNLOAD_BYTES_MAX):
            drawn[bug] = replace(each, is_carried=True)
            room -= size
    unseen = TimelinePicture(note=f"no timeline: {count} are drawn; `specstorm report --timelines N` draws more")
    return drawn | {finding.bug: unseen for finding in findings[count:]}


def _draw(finding: Finding, folder: Path) -> TimelinePicture:
    if kills_worker(finding.verdict):
        return TimelinePicture(note="no timeline: this trace kills the process that runs it")
    if finding.config.engine not in known_engines() or not has_timeline(finding.config):
        return TimelinePicture(note="no timeline: lanes are recorded only on the simulated device")
    trace = finding.judgement.trace
    if not FAULTS.keys() >= set(trace.faults) or problems(trace) or over_limits(trace):
        return TimelinePicture(note="no timeline: no engine runs this trace, or it would take too long")
    try:
        verdict, timeline = record_timeline(trace, finding.config)
    except DeviceError as error:
        return TimelinePicture(note=f"no timeline: {error}")
    signature = signature_of(verdict, trace)
    if signature is None:
        return TimelinePicture(note=f"no timeline: with the present code the verdict on this trace is {verdict.kind}")
    if not timeline.tasks:
        return TimelinePicture(note=f"no timeline: engine {finding.config.engine} records no tasks of its lanes")
    order = detected_race(verdict)
    name = finding.anchor.removeprefix("finding-")
    file = f"{FOLDER}/{finding.plane}-{name}.json"
    document = perfetto_trace(timeline, finding.bug, order)
    write_inside(folder, file, document)
    # Without a timestamp, the same trace gives the same page.
    packed = gzip.compress(document.encode(), mtime=0)
    return TimelinePicture(picture_of(timeline, finding.difference, order), file, packed)
