"""Command `merge`: one campaign of several."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from cluster.campaigns.exit_codes import EXIT_NOT_JUDGED, exit_code, weightiest
from cluster.cli.campaign import campaign_folder, say
from cluster.storage.campaign import Campaign
from cluster.storage.merging import merge as merge_campaigns
from workers.record.verdict import Verdict


def merge(
    campaigns: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Campaign folders.")],
    out: Annotated[
        Path | None, typer.Option(help="Campaign folder; what is in it takes part. Default: a new one.")
    ] = None,
) -> int:
    """Merge campaigns into one: the same whatever their order, and however often one comes."""
    for campaign in campaigns:
        Campaign(campaign).close()
    folder = campaign_folder(out, "merged")
    for remark in merge_campaigns(campaigns, folder):
        say(remark)
    with Campaign(folder) as merged:
        lines, code = _summary(merged)
    print("\n".join([*lines, f"results: {folder}"]))
    return code


def _summary(merged: Campaign) -> tuple[list[str], int]:
    """Return what a merged campaign holds, a line each, and what it comes to."""
    verdicts: list[Verdict] = [result.judgement.verdict for result in merged.results()]
    kinds = Counter(verdict.kind for verdict in verdicts)
    lines = [f"{len(verdicts):,} results: {', '.join(f'{count:,} {kind}' for kind, count in sorted(kinds.items()))}"]
    codes = [exit_code(verdicts)]
    traces, bugs = sum(shard.report.traces for shard in merged.shards() if shard.role == "hunt"), _open_bugs(merged)
    if traces:
        lines.append(f"{traces:,} traces of hunts, {len(bugs)} {'finding' if len(bugs) == 1 else 'findings'}")
        codes.append(1 if bugs else 0)
    trials = sum(1 for _ in merged.trials())
    lines += [f"{trials:,} trials of faults"] if trials else []
    contradictions = merged.contradictions()
    lines += [f"two attempts of job {job} came to different results" for job in contradictions]
    codes.append(EXIT_NOT_JUDGED if contradictions else 0)
    return [line for line in lines if not line.startswith("0 results")], weightiest(*codes)


def _open_bugs(merged: Campaign) -> set[str]:
    """Return the findings of hunts that neither came to nothing nor came out as others."""
    bugs = set()
    for bug, text in merged.findings():
        state = json.loads(text)
        judgement = state["judgement"]
        is_refuted = judgement is not None and judgement["verdict"]["kind"] == "lost"
        if state["same_as"] is None and not is_refuted:
            bugs.add(bug)
    return bugs
