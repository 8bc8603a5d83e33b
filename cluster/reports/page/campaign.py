"""A campaign as values for the report page: totals, results, findings, coverage, trials."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.nightly import NOT_JUDGED, PartEntry
from cluster.campaigns.regression_counts import RegressionCounts, regression_counts
from cluster.reports.page.coverage import Cells, add_coverage, add_result
from cluster.reports.page.findings import Finding, config_of, of_state
from cluster.reports.page.hunts import HuntSummary, read_hunt
from cluster.reports.page.judged import Amount, jobs_of, missing_of, plan_of
from cluster.storage.campaign import DATABASE
from cluster.storage.campaign import Campaign as Stored
from cluster.storage.errors import reading_values
from cluster.storage.hunts import FindingState, HuntPlan
from cluster.storage.provenance import PlannedWork, Run
from cluster.storage.schema import Row as StoredRow
from scenarios.generation.shards import TRACES_PER_SHARD
from scenarios.input_file import CAMPAIGN_BYTES_MAX, read_file
from scenarios.probes import PROBES
from workers.faults.registry import FAULTS
from workers.record.verdict import Judgement, is_finding
from workers.run.coverage import joined_coverage
from workers.run.shard import ShardReport
from workers.run.trials import Trial
from workers.shrink.fingerprint import signature_of
from workers.targets.registry import is_counted
from workers.targets.target import SPECSTORM

REGRESSIONS = "regressions"
# The report of a night, which has the time of each part.
NIGHT = "report.json"
_UNITS = {"hunt": "traces a second", "faults": "trials a second"}
_FINDINGS = ("diverged", "crashed", "stuck")
_COUNTED = ("requests", "steps", "captures", "run_ahead_max")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that wrote the campaign, with the number of jobs answered in it."""

    run: Run
    jobs: int

    @property
    def rate(self) -> float | None:
        """Return the jobs per second, None without a recorded end."""
        return self.jobs / self.run.seconds if self.run.seconds else None


# A row of the table of results: scenario, verdict, the counts of its run, schedules, and the anchor of its finding.
Row = list[Any]


@dataclass(slots=True)
class Campaign:
    """One campaign folder, read for the report page.

    `faults` were on in some run. `probes` counts the runs (of a hunt: the traces) that hit each probe, out of
    `num_probed`. `seen` has, by job key, whether faults were on, and the verdict. `plan` is the work that commands were
    going to judge. `rows` are the results of scenarios, and planned scenarios without one. `regressions` are the counts
    of a night's regressions, `known_missed` the ones whose faults were not found again. `remarks` lists read problems.
    `coverage` counts runs. `parts` has the times of a night's parts, from its report.
    """

    name: str
    folder: Path
    is_regressions: bool = False
    rows: list[Row] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    num_probed: int = 0
    coverage: Cells = field(default_factory=Counter)
    faults: set[str] = field(default_factory=set)
    plan: PlannedWork = field(default_factory=PlannedWork)
    seen: dict[str, tuple[bool, str]] = field(default_factory=dict)
    regressions: RegressionCounts | None = None
    known_missed: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    hunt: HuntSummary | None = None
    processes: list[Process] = field(default_factory=list)
    parts: Mapping[str, PartEntry] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    num_contradictions: int = 0

    @property
    def amounts(self) -> list[Amount]:
        """Return how much of the planned work was judged."""
        found = []
        if self.regressions is not None:
            found.append(Amount("regression", self.regressions.judged, self.regressions.planned))
        elif self.rows:
            found.append(
                Amount("scenario", len(self.rows) - self.kinds["lost"] - self.kinds[NOT_JUDGED], len(self.rows))
            )
        if self.hunt is not None:
            found.append(Amount("trace", self.hunt.tally.traces, self.plan.traces, is_least=bool(self.rows)))
            found.append(self.hunt.shards)
        if self.trials or self.plan.trials:
            found.append(Amount("trial", len(self.trials), len(self.plan.trials) or None))
        return found

    @property
    def is_judged(self) -> bool:
        """Whether at least one scenario, trace, shard or trial was judged."""
        return any(amount.done for amount in self.amounts)

    @property
    def gaps(self) -> list[str]:
        """Return sentences on what was not judged."""
        found = [f"{self.kinds[kind]} {kind}" for kind in ("vacuous", "lost") if self.kinds[kind]]
        if self.kinds[NOT_JUDGED]:
            found.append(f"{self.kinds[NOT_JUDGED]} of {len(self.rows)} scenarios were not judged")
        found += [f"the fault of {name} was not found any more" for name in self.known_missed]
        if self.hunt is not None:
            found += self.hunt.gaps()
            found += [
                f"judged: {each.text}" for each in self.amounts if each.unit == "trace" and each.done and each.is_short
            ]
        given_up = sum(trial.detected.at is None for trial in self.trials)
        if given_up:
            found.append(f"{given_up} of {len(self.trials)} trials did not find their fault")
        if self.num_contradictions:
            found.append(f"{self.num_contradictions} jobs have two different answers")
        if self.processes and self.processes[-1].run.ended is None:
            found.append("its last run was killed, or has not ended yet")
        found += self.remarks
        if not self.is_judged and not self.remarks:
            found.append("nothing was judged")
        return found

    @property
    def exit_code(self) -> int:
        """Return the campaign's exit code; findings count more than missing verdicts."""
        if self.findings:
            return EXIT_FOUND
        return EXIT_NOT_JUDGED if self.gaps else EXIT_AGREED

    @property
    def rates(self) -> dict[str, float]:
        """Return the rates of the campaign's processes: judged units per unit of time.

        Empty without the recorded end of one.

        The rates of a night use the time of each of its parts, from its report.
        """
        if self.is_regressions or self.parts or (self.hunt is not None and self.trials):
            units = {"regressions": "regressions a second"} if self.is_regressions else _UNITS
            timed = {unit: self.parts[name] for name, unit in units.items() if name in self.parts}
            return {unit: part.done / part.seconds for unit, part in timed.items() if part.done and part.seconds > 0}
        if self.hunt is not None and self.rows:
            # The scenarios of a gate have no time apart from its hunt.
            return {}
        seconds = [process.run.seconds for process in self.processes if process.jobs]
        total = sum(each for each in seconds if each is not None)
        if None in seconds or not total:
            return {}
        if self.hunt is not None:
            return {"traces a second": self.hunt.tally.traces / total, "steps a second": self.totals["steps"] / total}
        if self.rows:
            judged = len(self.rows) - self.kinds[NOT_JUDGED]
            return {"scenarios a second": judged / total, "runs a second": self.totals["runs"] / total}
        return {"trials a second": len(self.trials) / total} if self.trials else {}

    @property
    def begun(self) -> str:
        """Return the start of the first process that wrote the campaign, empty if unknown."""
        return min((process.run.begun for process in self.processes), default="")

    @property
    def engines(self) -> tuple[str, ...]:
        """Return the tested engines, as far as they were recorded."""
        planned = [plan.run_on.engine or SPECSTORM for plan in self.hunt.plans] if self.hunt is not None else []
        return tuple(dict.fromkeys((*planned, *(each.run.engine for each in self.processes if each.run.engine))))

    @property
    def probes_counted(self) -> list[str]:
        """Return the probes that the campaign's engines count.

        An unknown engine is assumed to count all.
        """
        engines = self.engines or ("",)
        return [name for name in PROBES if self.probes[name] or any(is_counted(name, engine) for engine in engines)]

    @property
    def probes_never_hit(self) -> list[str]:
        """Return the probes that no run hit; none if no run counts probes."""
        return [probe for probe in self.probes_counted if not self.probes[probe]] if self.num_probed else []


def read_campaigns(folder: Path) -> Iterator[Campaign]:
    """Yield the campaign of a folder, and for a night the campaign of its regressions.

    Raises:
        CampaignError: the folder has no campaign, or one with values of another version.
    """
    below = folder / REGRESSIONS
    parts = _parts_of(folder / NIGHT)
    with reading_values(folder, "report"):
        yield _read(folder, str(folder), is_regressions=False, parts=parts)
        if (below / DATABASE).is_file():
            yield _read(below, f"{folder}/{REGRESSIONS}", is_regressions=True, parts=parts)


def _parts_of(report: Path) -> dict[str, PartEntry]:
    """Return the parts of a night from its report; none if it has no report of this version."""
    try:
        values = from_json(read_file(report, CAMPAIGN_BYTES_MAX))
        return TypeAdapter(dict[str, PartEntry]).validate_python(values["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _read(folder: Path, name: str, is_regressions: bool, parts: Mapping[str, PartEntry]) -> Campaign:
    campaign = Campaign(name, folder, is_regressions, parts=parts)
    with Stored(folder) as stored:
        answered, runs = stored.answered(), stored.runs()
        campaign.processes = [Process(run, answered[run.run]) for run in runs]
        campaign.plan = plan_of(runs)
        _add_results(campaign, list(stored.select("results", order=("scenario",))))
        plans = tuple(HuntPlan.model_validate_json(plan) for plan in stored.plans())
        if plans:
            campaign.hunt, reports = read_hunt(plans, stored)
            campaign.faults.update(fault for plan in plans for fault in plan.faults)
            _add_shards(campaign, campaign.hunt, reports, stored)
        campaign.trials = [trial for trial in stored.trials() if trial.fault in FAULTS]
        campaign.num_contradictions = len(stored.contradictions())
        campaign.remarks = stored.remarks
    return campaign


def _add_results(campaign: Campaign, rows: list[StoredRow]) -> None:
    """Add the results of scenarios, and scenarios planned but not judged."""
    for row in rows:
        _add_result(campaign, row)
    jobs = jobs_of(campaign.plan, [(str(row[0]), str(row[1])) for row in rows])
    if campaign.is_regressions:
        campaign.regressions = regression_counts(jobs, campaign.seen)
        return
    for name in missing_of(jobs, campaign.seen):
        campaign.kinds[NOT_JUDGED] += 1
        campaign.rows.append([name, NOT_JUDGED, *[None] * len(_COUNTED), None, ""])


def _add_result(campaign: Campaign, row: StoredRow) -> None:
    """Add a result, with defaults for keys that its stored JSON leaves out."""
    key, scenario, _, verdict, _, artefact, judged = row
    name, kind = str(scenario), str(verdict)
    judgement = Judgement.model_validate_json(str(judged))
    values = judgement.model_dump(mode="json")
    campaign.faults.update(values["trace"]["faults"])
    campaign.seen[str(key)] = bool(values["trace"]["faults"]), kind
    if kind in _FINDINGS:
        if campaign.is_regressions and judgement.trace.faults:
            return
        anchor = _add_finding(campaign, name, None if artefact is None else str(artefact), judgement)
    elif campaign.is_regressions and values["trace"]["faults"]:
        campaign.known_missed.append(name)
        return
    else:
        anchor = ""
    stats = values["verdict"].get("stats", {})
    counted = [stats.get(name) for name in _COUNTED]
    campaign.kinds[kind] += 1
    campaign.rows.append([name, kind, *counted, values["schedules"], anchor])
    campaign.totals.update(runs=values["schedules"], steps=stats.get("steps", 0), captures=stats.get("captures", 0))
    if stats:
        campaign.num_probed += 1
        campaign.probes.update(dict.fromkeys(stats["probes"], 1))
        add_result(campaign.coverage, values)


def _add_finding(campaign: Campaign, name: str, artefact: str | None, judgement: Judgement) -> str:
    signature = signature_of(judgement.verdict, judgement.trace)
    assert signature is not None, "a finding has a signature"
    known = campaign.findings.get(signature.bug)
    if known is None:
        config = config_of(campaign.folder / (artefact or ""))
        known = Finding(signature.bug, judgement, config, artefact, campaign.folder)
        campaign.findings[signature.bug] = known
    known.met_by(name)
    return known.anchor


def _add_shards(campaign: Campaign, hunt: HuntSummary, reports: list[ShardReport], stored: Stored) -> None:
    """Add a hunt's sums and findings to the campaign."""
    counts: Counter[str] = Counter()
    for hit in (hit for report in reports for hit in report.hits):
        counts[hit.signature.bug] += hit.count
    tally = hunt.tally
    campaign.probes.update(tally.probes)
    campaign.num_probed += tally.traces
    add_coverage(campaign.coverage, joined_coverage(report.coverage for report in reports))
    campaign.totals.update(runs=tally.runs, steps=tally.steps, captures=tally.captures)
    _add_states(campaign, hunt, stored, counts)


def _add_states(campaign: Campaign, hunt: HuntSummary, stored: Stored, counts: Counter[str]) -> None:
    """Add the findings of a hunt to the campaign, without duplicates.

    A duplicate, or one with the same cause, is counted at the earlier finding.
    """
    states = [FindingState.model_validate_json(text) for _, text in stored.findings()]
    for state in sorted(states, key=lambda state: state.first):
        if state.is_distinct and state.smallest is not None and is_finding(state.smallest.verdict):
            found = of_state(state, hunt.config, campaign.folder, counts[state.bug])
            campaign.findings[state.bug] = found
    face_of = {state.bug: state.face_of for state in states if state.face_of is not None}
    hunt.unjudged |= {state.first // TRACES_PER_SHARD for state in states if state.is_refuted}
    for state in states:
        same = state.same_as or state.bug
        into = campaign.findings.get(face_of.get(same, same)) if not state.is_distinct else None
        if into is not None:
            into.count += counts[state.bug]
            how = "also met as" if state.face_of is None else "also shows as"
            where = f" ({state.artefact})" if state.artefact is not None else ""
            into.remarks.append(f"{how}: {state.bug}{where}")
