"""Findings of a campaign by fingerprint, as values for the report page."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from cluster.dispatch.job import command
from cluster.storage.artefact import artefact_text
from cluster.storage.hunts import FindingState
from scenarios import codec
from scenarios.strict_yaml import ScenarioError
from workers.record.evidence import RACES, Difference
from workers.record.verdict import (
    Crashed,
    Diverged,
    Judgement,
    Stuck,
    Verdict,
    decisive_lane_pairs,
    detected_race,
    plane,
)
from workers.record.words import (
    actual_text,
    expected_text,
    finding_lines,
    harm_text,
    headline_text,
    missing_order_text,
    outcome_text,
    race_harm_text,
    reason_text,
    schedule_name,
    schedule_names,
    site_text,
    writer_text,
)
from workers.targets.target import RunConfig

_NAMED_MAX = 20


@dataclass(slots=True)
class Finding:
    """One bug in one campaign: a representative judgement, and its number of traces.

    `remarks` describe its discovery and shrinking. `names` are the first scenarios with it, `first` is the number of a
    hunt's first trace with it.
    """

    bug: str
    judgement: Judgement
    config: RunConfig
    artefact: str | None
    folder: Path
    count: int = 0
    first: int | None = None
    names: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Return the finding's HTML anchor, a digest that is the same in all reports."""
        return "finding-" + blake2b(self.bug.encode(), digest_size=5).hexdigest()

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the finding's representative trace."""
        return self.judgement.verdict

    @property
    def plane(self) -> str:
        """Return the state category (plane) that is wrong first."""
        return plane(self.verdict)

    @property
    def headline(self) -> str:
        """Describe the finding in a line."""
        return headline_text(self.verdict)

    @property
    def difference(self) -> Difference | None:
        """Return the first difference, None for another verdict."""
        return self.verdict.difference if isinstance(self.verdict, Diverged) else None

    @property
    def missing_order(self) -> str | None:
        """Describe the two unordered accesses of a race; None without a race."""
        order = detected_race(self.verdict)
        return missing_order_text(order) if order is not None else None

    @property
    def harm(self) -> str:
        """Describe what a race did under the tried schedules, and what it may do."""
        order, text = detected_race(self.verdict), race_harm_text(self.verdict, self.judgement.outcomes)
        return text if order is None or order.harm is None else f"{text}; {harm_text(order.harm)}"

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, value) of each fact about the finding that the page shows.

        A missing order, the cause of a wrong value, is first.
        """
        difference = self.difference
        if self.missing_order is not None:
            yield "missing order", self.missing_order
        if difference is not None:
            yield "variable", difference.variable
            if difference.plane != RACES:
                yield "expected", expected_text(difference)
                yield "actual", actual_text(difference)
            if difference.request:
                yield "request", difference.request
                yield "commit key", difference.commit
            if difference.step >= 0:
                yield "step", str(difference.step)
            if difference.position is not None:
                yield "position", str(difference.position)
        elif isinstance(self.verdict, Crashed):
            yield "error", self.verdict.error
            yield "raised in", site_text(self.verdict.where)
        elif isinstance(self.verdict, Stuck):
            yield "reason", reason_text(self.verdict)
        if self.judgement.trace.faults:
            yield "faults on", ", ".join(self.judgement.trace.faults)

    @property
    def writers(self) -> tuple[str, ...]:
        """Return the last writes to the memory of the wrong value, newest first, as text."""
        return tuple(map(writer_text, self.difference.writers)) if self.difference is not None else ()

    def schedules(self, agrees: bool) -> list[str]:
        """Return the names of schedules without the finding (`agrees`), or with it.

        Lane orders are only counted.
        """
        return schedule_names(self.judgement.outcomes, agrees)

    @property
    def outcomes(self) -> list[tuple[bool, str]]:
        """Return, for each schedule, whether it agrees, its name, and its outcome.

        Empty for a race, which `harm` describes.
        """
        each = self.judgement.outcomes if self.missing_order is None else ()
        return [(outcome.agrees, f"{schedule_name(outcome.schedule)}: {outcome_text(outcome)}") for outcome in each]

    @property
    def telling(self) -> str:
        """Return in words which orders of two lanes make the finding appear or disappear."""
        return " and ".join(
            f"{first} before {second}" for first, second in decisive_lane_pairs(self.judgement.outcomes)
        )

    @property
    def yaml(self) -> str:
        """Return the trace in the format of an artefact."""
        name = self.names[0] if self.names else self.bug
        return artefact_text(self.judgement, name, self.config)

    @property
    def replay(self) -> str | None:
        """Return the command that reproduces the finding; None while it has no artefact."""
        return None if self.artefact is None else command("replay", self.folder / self.artefact, self.config)

    @property
    def lines(self) -> list[str]:
        """Return the finding's description and its replay command, if it has one."""
        harm = [self.harm] if self.missing_order is not None else []
        return [*finding_lines(self.verdict), *harm, *([f"replay: {self.replay}"] if self.replay else [])]

    def met_by(self, name: str) -> None:
        """Count another scenario that has the finding, and store its name."""
        self.count += 1
        if len(self.names) < _NAMED_MAX:
            self.names.append(name)

    @property
    def num_unnamed(self) -> int:
        """Return how many scenarios or traces with the finding are not listed by name."""
        return self.count - len(self.names)


def of_state(state: FindingState, config: RunConfig, folder: Path, count: int) -> Finding:
    """Return a finding of a hunt, from the state that the campaign stores."""
    judgement = state.smallest
    assert judgement is not None, "a finding of a hunt has been seen"
    found = Finding(state.bug, judgement, config, state.artefact, folder, count, state.first)
    found.remarks.append(f"first met by trace {state.first}")
    if state.shrinking is not None:
        events = len(judgement.trace.events)
        done = "shrunk" if state.stage in ("closed", "confirmed") else "being shrunk, so far"
        found.remarks.append(f"{state.size} events {done} to {events} in {state.shrinking.spent} checks")
    return found


def config_of(artefact: Path) -> RunConfig:
    """Return the run configuration of an artefact; the default if it cannot be read."""
    try:
        return RunConfig.of(codec.run_on(artefact))
    except (ScenarioError, ValueError):
        return RunConfig()
