"""Judged and planned amounts of a campaign: scenarios, traces, shards, trials."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.storage.provenance import PlannedWork, Run


@dataclass(frozen=True, slots=True)
class Amount:
    """Number of judged units, and of planned units if there is a plan.

    With `is_least` the plan is a minimum, which a hunt may exceed.
    """

    unit: str
    done: int
    planned: int | None = None
    is_least: bool = False

    @property
    def is_short(self) -> bool:
        """Whether less was judged than planned."""
        return self.planned is not None and self.done < self.planned

    @property
    def text(self) -> str:
        """Return the amount in words, as `5 of 112 scenarios` or `no trace of at least 200`."""
        units = f"{self.unit}s" if self.done != 1 else self.unit
        if self.planned is None or (self.is_least and not self.is_short):
            return f"{self.done:,} {units}" if self.done else f"no {self.unit}"
        if self.is_least:
            done = f"{self.done:,} {units}" if self.done else f"no {self.unit}"
            return f"{done} of at least {self.planned:,}"
        units = f"{self.unit}s" if self.planned != 1 else self.unit
        if not self.done:
            return f"none of {self.planned:,} {units}"
        return f"{self.done:,} of {self.planned:,} {units}"


def plan_of(runs: Sequence[Run]) -> PlannedWork:
    """Return the plan of a campaign, from its processes in the order of their start.

    A later process replaces the jobs of a scenario of the same name, since it may have run edited sources. Hunts of
    several seeds, which a merge puts into one campaign, add up.
    """
    scenarios: dict[str, tuple[str, ...]] = {}
    trials: dict[str, None] = {}
    traces: dict[int | None, int] = {}
    for run in runs:
        scenarios |= run.planned.scenarios
        trials |= dict.fromkeys(run.planned.trials)
        if run.planned.traces is not None:
            traces[run.seed] = run.planned.traces
    return PlannedWork(scenarios=scenarios, trials=tuple(trials), traces=sum(traces.values()) if traces else None)


def jobs_of(plan: PlannedWork, results: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """Return the job keys of each scenario, from the plan and from stored results.

    A result has a key and a name.
    """
    found = dict(plan.scenarios)
    planned = {key for keys in found.values() for key in keys}
    for key, name in results:
        if key not in planned and name not in plan.scenarios:
            found[name] = (*found.get(name, ()), key)
    return found


def missing_of(jobs: Mapping[str, Iterable[str]], keys: Iterable[str]) -> list[str]:
    """Return the scenarios that have a job without a result."""
    having = set(keys)
    return [name for name, each in jobs.items() if not having.issuperset(each)]
