"""Command `merge`: merge several campaigns into one."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED, exit_code, weightiest
from cluster.cli.campaign import claim_campaign
from cluster.reports.report import findings_text
from cluster.reports.terminal import say, show
from cluster.storage.campaign import Campaign
from cluster.storage.errors import reading_values
from cluster.storage.hunts import FindingState
from cluster.storage.merging import merge as merge_campaigns
from workers.record.verdict import Verdict


def merge(
    campaigns: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Campaign folders.")],
    out: Annotated[Path | None, typer.Option(help="Merge into this campaign folder (default: a new one).")] = None,
) -> int:
    """Merge campaigns into one; the result does not depend on their order or on duplicates."""
    for campaign in campaigns:
        Campaign(campaign).close()
    claimed = claim_campaign(out, "merged")
    folder = claimed.folder
    for remark in merge_campaigns(campaigns, claimed):
        say(remark)
    with Campaign(folder) as merged, reading_values(folder, "merge"):
        lines, code = _summary(merged)
    show(*lines, f"results: {folder}")
    return code


def _summary(merged: Campaign) -> tuple[list[str], int]:
    """Return the contents of a merged campaign, one line each, and its exit code."""
    verdicts: list[Verdict] = [result.judgement.verdict for result in merged.results()]
    lines, codes = [], [exit_code(verdicts)]
    if verdicts:
        kinds = Counter(verdict.kind for verdict in verdicts)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        lines.append(f"{len(verdicts):,} results: {counts}")
    traces = sum(shard.report.traces for shard in merged.shards() if shard.role == "hunt")
    if traces:
        states = [FindingState.model_validate_json(state) for _, state in merged.findings()]
        num_findings = sum(state.is_distinct for state in states)
        lines.append(f"{traces:,} traces of hunts, {findings_text(num_findings)}")
        codes.append(EXIT_FOUND if num_findings else EXIT_AGREED)
    trials = sum(1 for _ in merged.trials())
    if trials:
        lines.append(f"{trials:,} trials of faults")
    contradictions = merged.contradictions()
    lines += [f"two attempts of job {job} came to different results" for job in contradictions]
    codes.append(EXIT_NOT_JUDGED if contradictions else EXIT_AGREED)
    return lines, weightiest(*codes)
