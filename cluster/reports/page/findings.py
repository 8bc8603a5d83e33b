"""Findings of a campaign by fingerprint, as values of the report page."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

from cluster.campaigns.triage import FindingState, kills_worker
from cluster.dispatch.job import command
from cluster.storage.artefact import ORDER, artefact_text, telling_pairs
from workers.record.verdict import Crashed, Difference, Diverged, Judgement, Outcome, Stuck, Verdict, plane
from workers.targets.target import RunConfig

_REPLAY = "# replay: "
_NAMED_MAX = 20


@dataclass(slots=True)
class Finding:
    """One bug in one campaign: its representative judgement, and where it was met; `count` traces or scenarios met it.

    `remarks` say how it was met and shrunk; `names` are the first scenarios that met it.
    """

    bug: str
    judgement: Judgement
    config: RunConfig
    artefact: str | None
    folder: Path
    count: int = 0
    names: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Return the anchor of links to it, the same in every report."""
        return "finding-" + blake2b(self.bug.encode(), digest_size=5).hexdigest()

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on its trace."""
        return self.judgement.verdict

    @property
    def plane(self) -> str:
        """Return the kind of state it is about."""
        return plane(self.verdict)

    @property
    def kills(self) -> bool:
        """Whether a process that runs its trace dies."""
        return kills_worker(self.verdict)

    @property
    def headline(self) -> str:
        """Describe the finding in a line."""
        match self.verdict:
            case Diverged(difference=difference) if difference.plane == "races":
                return f"nothing orders two uses of {difference.variable}"
            case Diverged(difference=difference):
                return f"{difference.variable} is {difference.actual}, expected {difference.expected}"
            case Crashed(error=error):
                return error
            case Stuck(reason=reason):
                return reason
            case other:
                return other.kind

    @property
    def difference(self) -> Difference | None:
        """Return the first difference, where there is one."""
        return self.verdict.difference if isinstance(self.verdict, Diverged) else None

    @property
    def missing_order(self) -> str | None:
        """Return the two unordered accesses, if the race detector saw some."""
        match self.verdict:
            case Diverged(difference=difference):
                return difference.missing_order
            case Crashed(missing_order=order):
                return order
            case _:
                return None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield names and values of its facts."""
        difference = self.difference
        if difference is not None:
            yield "variable", difference.variable
            yield "expected", difference.expected
            yield "actual", difference.actual
            if difference.request:
                yield "request", difference.request
                yield "commit key", difference.commit
            if difference.step >= 0:
                yield "step", str(difference.step)
            if difference.position is not None:
                yield "position", str(difference.position)
        elif isinstance(self.verdict, Crashed):
            yield "error", self.verdict.error
            yield "raised in", self.verdict.where
        elif isinstance(self.verdict, Stuck):
            yield "reason", self.verdict.reason
        if self.missing_order is not None:
            yield "missing order", self.missing_order
        if self.judgement.trace.faults:
            yield "faults on", ", ".join(self.judgement.trace.faults)

    @property
    def writers(self) -> tuple[str, ...]:
        """Return the last writers of the wrong value, newest first."""
        return self.difference.writers if self.difference is not None else ()

    def schedules(self, agrees: bool) -> list[str]:
        """Return the names of schedules under which it does not show, or does; lane orders are counted."""
        names = [outcome.schedule for outcome in self.judgement.outcomes if outcome.agrees is agrees]
        simple = [name for name in names if ORDER not in name]
        orders = len(names) - len(simple)
        return simple + ([f"{orders} lane orders"] if orders else [])

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Return the outcome of each schedule."""
        return self.judgement.outcomes

    @property
    def telling(self) -> str:
        """Return the orders of two lanes that decide whether it shows, empty if none does."""
        return " and ".join(f"{first} before {second}" for first, second in telling_pairs(self.judgement.outcomes))

    @property
    def yaml(self) -> str:
        """Return its trace, as in its artefact."""
        name = self.names[0] if self.names else self.bug
        return artefact_text(self.judgement, name, self.config)

    @property
    def replay(self) -> str | None:
        """Return the command that shows it again; None where it has no artefact yet."""
        return None if self.artefact is None else command("replay", self.folder / self.artefact, self.config)

    def met_by(self, name: str) -> None:
        """Count another scenario that met it, and note its name."""
        self.count += 1
        if len(self.names) < _NAMED_MAX:
            self.names.append(name)

    @property
    def num_unnamed(self) -> int:
        """Return the number of scenarios or traces that met it and are not named."""
        return self.count - len(self.names)


def of_state(state: FindingState, config: RunConfig, folder: Path, count: int) -> Finding:
    """Return the finding of a hunt, as far as it has been worked on."""
    judgement = state.judgement
    if judgement is None and state.shrinking is not None:
        judgement = Judgement(verdict=state.shrinking.verdict, trace=state.shrinking.trace, schedules=1)
    if judgement is None:
        assert state.verdict is not None, "a finding of a hunt has been seen"
        judgement = Judgement(verdict=state.verdict, trace=state.trace, schedules=1)
    found = Finding(state.bug, judgement, config, state.artefact, folder, count)
    found.remarks.append(f"first met by trace {state.first}")
    if state.shrinking is not None:
        events = len(judgement.trace.events)
        done = "shrunk" if state.stage in ("closed", "confirmed") else "being shrunk, so far"
        found.remarks.append(f"{state.size} events {done} to {events} in {state.shrinking.spent} checks")
    return found


def config_of(artefact: Path) -> RunConfig:
    """Return the configuration that an artefact replays under, as its comment says; the default where it says none."""
    try:
        with artefact.open(encoding="utf-8") as file:
            line = next((line for line in file if line.startswith(_REPLAY)), "")
        words = shlex.split(line.removeprefix(_REPLAY))
    except (OSError, ValueError):
        return RunConfig()
    known = {f"--{name}": name for name in RunConfig.model_fields}
    pairs = pairwise(words)
    values = {known[flag]: value for flag, value in pairs if flag in known}
    try:
        return RunConfig.model_validate(values)
    except ValueError:
        return RunConfig()
