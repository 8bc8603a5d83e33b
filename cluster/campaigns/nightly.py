"""What a night does beside hunting: traces of known faults are replayed, and a part of the faults is measured.

Each trace must still be found, and the clean engine must agree on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cluster.campaigns.campaign import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED, Campaign, Quiet, Scenario, Stop
from cluster.campaigns.inputs import faults_on, read_trace
from cluster.dispatch.job import Job
from cluster.dispatch.pool import Pool
from cluster.storage.artefact import finding_lines, portable
from cluster.storage.store import Store
from scenarios import codec
from scenarios.trace import Trace, problems
from workers.record.verdict import Agreed, Verdict, is_finding, plane
from workers.targets.target import DEFAULT_CONFIG, RunConfig

NIGHTS = 7
TRIALS = 3
TRACES = 200


def part_of_the_faults(night: int, nights: int, config: RunConfig = DEFAULT_CONFIG) -> list[str]:
    """Return the faults measured tonight; those of `nights` nights in a row are all that exist on the device."""
    return faults_on(config)[night % nights :: nights]


@dataclass(slots=True)
class Regressions:
    """Traces of known faults by file, and what each came to, with its faults on and without.

    `refused` are those that no engine runs without their faults, `elsewhere` those whose faults do not exist on the
    device; the clean engine runs these too.
    """

    traces: dict[str, Trace]
    faulty: dict[str, Verdict | None] = field(default_factory=dict)
    clean: dict[str, Verdict | None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> "Regressions":
        """Return the regressions of a folder.

        Raises:
            ScenarioError: a file is no scenario.
            InputError: a fault is unknown.
        """
        return cls({portable(str(path)): read_trace(path) for path in codec.find_scenarios([folder])})

    def run(self, store: Store, pool: Pool, stop: Stop, config: RunConfig = DEFAULT_CONFIG) -> None:
        """Judge every trace twice, under its own schedule; results are kept in a folder of their own."""
        clean = {name: trace.model_copy(update={"faults": ()}) for name, trace in self.traces.items()}
        # A fault may lift a refusal: without it no engine runs the trace at all.
        self.refused = [name for name, trace in clean.items() if problems(trace)]
        here = set(faults_on(config))
        self.elsewhere = [name for name, trace in self.traces.items() if not here.issuperset(trace.faults)]
        faulty = [(name, trace) for name, trace in self.traces.items() if name not in self.elsewhere]
        pairs = [*faulty, *((name, trace) for name, trace in clean.items() if name not in self.refused)]
        with Store(store.folder / "regressions") as kept:
            scenarios = [Scenario(name, Job.of(trace, sweep=False, config=config)) for name, trace in pairs]
            campaign = Campaign(scenarios, kept)
            campaign.run(pool, Quiet(), stop)
            verdicts = campaign.verdicts()
        names, count = [name for name, _ in pairs], len(faulty)
        self.faulty = dict(zip(names[:count], verdicts[:count], strict=True))
        self.clean = dict(zip(names[count:], verdicts[count:], strict=True))

    @property
    def missed(self) -> list[str]:
        """Return the files whose faults are not found any more."""
        return [
            name
            for name, trace in self.traces.items()
            if trace.faults
            and name not in self.elsewhere
            and not ((verdict := self.faulty.get(name)) is not None and is_finding(verdict))
        ]

    @property
    def failing(self) -> list[str]:
        """Return the files on which the clean engine does not agree."""
        return [
            name for name in self.traces if name not in self.refused and not isinstance(self.clean.get(name), Agreed)
        ]

    def exit_code(self) -> int:
        """Return what the replay comes to: a clean engine that fails weighs more than a fault that is missed."""
        verdicts = [self.clean.get(name) for name in self.failing]
        if any(verdict is not None and is_finding(verdict) for verdict in verdicts):
            return EXIT_FOUND
        return EXIT_NOT_JUDGED if self.failing or self.missed else EXIT_AGREED

    def lines(self) -> Iterator[str]:
        """Yield the report, a line at a time."""
        known = sum(bool(trace.faults) for trace in self.traces.values())
        found = known - len(self.elsewhere) - len(self.missed)
        agreed = sum(isinstance(verdict, Agreed) for verdict in self.clean.values())
        yield f"regressions: {len(self.traces)} traces; {found} known faults found, clean engine agrees on {agreed}"
        if self.elsewhere:
            yield f"  not looked for: the faults of {len(self.elsewhere)} traces do not exist on this device"
        yield from (f"  NOT FOUND any more: {name}" for name in self.missed)
        for name in self.failing:
            verdict = self.clean.get(name)
            yield f"  CLEAN ENGINE FAILS: {name}" if verdict is not None else f"  not judged: {name}"
            yield from (f"    {line}" for line in (finding_lines(verdict) if verdict is not None else []))

    def entries(self) -> list[dict[str, object]]:
        """Return the report as JSON values."""
        entries: list[dict[str, object]] = []
        for name, trace in self.traces.items():
            faulty, clean = self.faulty.get(name), self.clean.get(name)
            found = plane(faulty) if faulty is not None and is_finding(faulty) else None
            state = "refused" if name in self.refused else "not run" if clean is None else clean.kind
            entries.append({"file": name, "faults": list(trace.faults), "found_in": found, "clean": state})
        return entries
