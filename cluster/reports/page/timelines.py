"""Timelines of findings: each trace is replayed in this process, drawn, and written as a Perfetto trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.campaigns.triage import kills_worker
from cluster.reports.page.findings import Finding
from cluster.reports.page.perfetto import perfetto_trace
from cluster.reports.page.timeline_picture import Picture, picture_of
from cluster.storage.artefact import write_atomically
from workers.record.verdict import missing_order_of
from workers.run.timeline import has_timeline, record_timeline
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import known_engines
from workers.targets.target import DeviceError

FOLDER = "timelines"


@dataclass(frozen=True, slots=True)
class Drawn:
    """The timeline of one finding, and the file of its Perfetto trace; or a note why there is none."""

    picture: Picture | None = None
    file: str | None = None
    note: str = ""


def draw_timelines(findings: Sequence[Finding], folder: Path, count: int) -> dict[str, Drawn]:
    """Replay the first findings and write their traces below a folder; return the drawings by bug."""
    drawn = {finding.bug: _draw(finding, folder) for finding in findings[:count]}
    unseen = Drawn(note=f"no timeline: {count} are drawn; `specstorm report --timelines N` draws more")
    return drawn | {finding.bug: unseen for finding in findings[count:]}


def _draw(finding: Finding, folder: Path) -> Drawn:
    if kills_worker(finding.verdict):
        return Drawn(note="no timeline: whoever runs this trace dies")
    if finding.config.engine not in known_engines() or not has_timeline(finding.config):
        return Drawn(note="no timeline: lanes are recorded on the simulated device alone")
    try:
        verdict, timeline = record_timeline(finding.judgement.trace, finding.config)
    except DeviceError as error:
        return Drawn(note=f"no timeline: {error}")
    signature = signature_of(verdict, finding.judgement.trace)
    if signature is None:
        return Drawn(note=f"no timeline: with the code at hand its trace comes to {verdict.kind}")
    order = missing_order_of(verdict)
    name = finding.anchor.removeprefix("finding-")
    file = f"{FOLDER}/{finding.plane}-{name}.json"
    write_atomically(folder / file, perfetto_trace(timeline, finding.bug, order))
    return Drawn(picture_of(timeline, finding.difference, order), file)
