"""Comparison of each campaign with the previous one: findings, verdicts, probes, sums."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from cluster.campaigns.nightly import NOT_JUDGED
from cluster.dispatch.job import words_of
from cluster.reports.page.campaign import Campaign
from cluster.reports.page.findings import Finding
from workers.targets.target import RunConfig

Change: TypeAlias = Literal[
    "new",
    "still there",
    "gone",
    "not met",
    "not judged",
    "not judged before",
    "fault switched on",
    "fault switched off",
]
_LISTED_MAX = 50


@dataclass(frozen=True, slots=True)
class Bug:
    """A finding in two campaigns: how many traces or scenarios of each have it.

    `anchor` links to it.

    It is gone if the later campaign judged a scenario or trace that had it before, and not met if it judged only
    others.
    """

    bug: str
    anchor: str
    headline: str
    before: int
    after: int
    change: Change


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between a campaign and the previous one: settings, verdicts, probes.

    `moved` are scenarios with different verdicts, `num_moved` their full number.

    `differences` are different settings. `sums` are rows of a name and both numbers. `gained` and `dropped` are probes
    that only one of them hit.
    """

    before: str
    after: str
    bugs: tuple[Bug, ...]
    moved: tuple[tuple[str, str, str], ...]
    num_moved: int
    only_before: int
    only_after: int
    gained: tuple[str, ...]
    dropped: tuple[str, ...]
    sums: tuple[tuple[str, int, int], ...]
    differences: tuple[tuple[str, str, str], ...]


def comparisons(campaigns: Sequence[Campaign]) -> list[Comparison]:
    """Return, for each campaign, the comparison with the previous one of the same kind."""
    found = []
    for at, after in enumerate(campaigns):
        before = next((each for each in reversed(campaigns[:at]) if _kind(each) == _kind(after)), None)
        if before is not None:
            found.append(compare(before, after))
    return found


def _kind(campaign: Campaign) -> str:
    """Return the kind of a campaign; only campaigns of the same kind are compared."""
    if campaign.is_regressions:
        return "regressions"
    return "hunt" if campaign.hunt is not None else "faults" if campaign.trials else "run"


def compare(before: Campaign, after: Campaign) -> Comparison:
    """Return what differs between an earlier and a later campaign."""
    bugs = dict.fromkeys((*after.findings, *before.findings))
    verdicts = [{row[0]: row[1] for row in campaign.rows} for campaign in (before, after)]
    common = [name for name in verdicts[1] if name in verdicts[0]]
    both = [(name, verdicts[0][name], verdicts[1][name]) for name in common if verdicts[0][name] != verdicts[1][name]]
    moved = [each for each in both if NOT_JUDGED not in each[1:]]
    probed = bool(before.num_probed and after.num_probed)
    return Comparison(
        before=before.name,
        after=after.name,
        bugs=tuple(sorted((_bug(bug, before, after) for bug in bugs), key=lambda each: each.change != "new")),
        moved=tuple(moved[:_LISTED_MAX]),
        num_moved=len(moved),
        only_before=len(verdicts[0]) - len(common),
        only_after=len(verdicts[1]) - len(common),
        gained=tuple(probe for probe in before.probes_never_hit if probed and after.probes[probe]),
        dropped=tuple(probe for probe in after.probes_never_hit if probed and before.probes[probe]),
        sums=tuple(_sums(before, after)),
        differences=tuple(_differences(before, after)),
    )


def _bug(bug: str, before: Campaign, after: Campaign) -> Bug:
    known = after.findings.get(bug) or before.findings[bug]
    return Bug(bug, known.anchor, known.headline, _times(bug, before), _times(bug, after), _change(bug, before, after))


def _change(bug: str, before: Campaign, after: Campaign) -> Change:
    """Return how a finding changed between two campaigns: new, still there, gone ...

    If only one campaign had the required faults on, the change is the switch of its fault.
    """
    if bug in before.findings and bug in after.findings:
        return "still there"
    having, other = (before, after) if bug in before.findings else (after, before)
    finding = having.findings[bug]
    faults = set(finding.judgement.trace.faults)
    if faults.issubset(before.faults) != faults.issubset(after.faults):
        return "fault switched off" if having is before else "fault switched on"
    judged = _is_judged_again(finding, having, other)
    if having is after:
        return "not judged before" if judged is False else "new"
    if judged is None:
        return "not met"
    return "gone" if judged else "not judged"


def _is_judged_again(finding: Finding, having: Campaign, other: Campaign) -> bool | None:
    """Return whether `other` judged the traces in which campaign `having` has the finding.

    None if they were no part of it.
    """
    if not other.is_judged:
        return False
    if finding.names:
        kinds = [row[1] for row in other.rows if row[0] in finding.names]
        return any(kind not in (NOT_JUDGED, "lost") for kind in kinds) if kinds else None
    plans = [each.hunt.plans if each.hunt is not None else () for each in (having, other)]
    drawn = [{(plan.profile, plan.seed, plan.corpus) for plan in each} for each in plans]
    if finding.first is None or other.hunt is None or drawn[0] != drawn[1]:
        return None
    return other.hunt.tally.traces > finding.first


def _differences(before: Campaign, after: Campaign) -> Iterator[tuple[str, str, str]]:
    """Yield the settings in which two campaigns differ: name, and both values in words."""
    first, second = (_ran(campaign) for campaign in (before, after))
    for name, text in second.items():
        if first[name] != text:
            yield name, first[name] or "-", text or "-"


def _ran(campaign: Campaign) -> dict[str, str]:
    """Return how a campaign ran, as words by setting.

    Several processes may have several values.
    """
    plans = campaign.hunt.plans if campaign.hunt is not None else ()
    runs = [process.run for process in campaign.processes]
    seeds = [plan.seed for plan in plans] or [run.seed for run in runs if run.seed is not None]
    said = {
        "faults switched on": sorted(campaign.faults) if not campaign.is_regressions else (),
        "engine": campaign.engines,
        "options of the engine": [" ".join(RunConfig.of(plan.run_on).flags()) for plan in plans],
        "version of the engine": [plan.run_on.version for plan in plans if plan.run_on.version],
        "sources of the engine": [plan.run_on.sources for plan in plans if plan.run_on.sources],
        "profile": [plan.profile for plan in plans],
        "seed": map(str, seeds),
        "corpus": [plan.corpus for plan in plans if plan.corpus],
        "canary": [plan.canary for plan in plans],
        "specstorm": [run.specstorm for run in runs],
        "commit": [run.commit[:10] + ("+" if run.commit.endswith("+") else "") for run in runs if run.commit],
        "machine": [run.system for run in runs],
        "command": [_asked(run.command) for run in runs],
    }
    return {name: ", ".join(dict.fromkeys(filter(None, texts))) for name, texts in said.items()}


def _asked(command: str) -> str:
    """Return a campaign's command without its results folder, which is always different."""
    try:
        words = words_of(command)
    except ValueError:
        return command
    return shlex.join(
        word
        for before, word in pairwise(["", *words])
        if "--out" not in (before, word) and not word.startswith("--out=")
    )


def _times(bug: str, campaign: Campaign) -> int:
    """Return the number of traces or scenarios with a bug.

    At least 1, since a stopped hunt may not have counted them.
    """
    return max(1, campaign.findings[bug].count) if bug in campaign.findings else 0


def _sums(before: Campaign, after: Campaign) -> Iterator[tuple[str, int, int]]:
    if before.rows or after.rows:
        yield "scenarios", len(before.rows), len(after.rows)
        if before.kinds[NOT_JUDGED] or after.kinds[NOT_JUDGED]:
            yield "of these not judged", before.kinds[NOT_JUDGED], after.kinds[NOT_JUDGED]
        yield "agreed", before.kinds["agreed"], after.kinds["agreed"]
    if before.hunt is not None and after.hunt is not None:
        yield "traces", before.hunt.tally.traces, after.hunt.tally.traces
    for name, label in (("runs", "runs"), ("steps", "steps"), ("captures", "observations compared")):
        yield label, before.totals[name], after.totals[name]
    if before.is_judged and after.is_judged:
        yield "findings", len(before.findings), len(after.findings)
    if before.trials and after.trials:
        yield "trials", len(before.trials), len(after.trials)
        yield "trials that found their fault", _num_found(before), _num_found(after)


def _num_found(campaign: Campaign) -> int:
    return sum(trial.detected.at is not None for trial in campaign.trials)
