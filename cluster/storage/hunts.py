"""Stored values of hunts: the plan of a hunt and the state of a finding.

Rows of the tables `hunts` and `findings` are validated as these values when they are read (`cluster.storage.rows`).
"""

from typing import Literal

from pydantic import field_validator

from scenarios.generation.shards import Profile
from scenarios.scenario_file import RunOn
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.evidence import Site
from workers.record.names import ArtefactPath
from workers.record.verdict import Crashed, Judgement, Lost, Verdict, is_finding, unconfirmed_reason
from workers.run.shard import Hit
from workers.shrink.shrinker import Finding, Shrinking
from workers.targets.target import RunConfig

# This fault replaces a function of the host, and so exists on every device.
CANARY = "vllm-38556-backup-token"
KILLED = Site(function="worker process")


class HuntPlan(Value):
    """Stored plan of a hunt: traces, faults, engine and device.

    `canary` is the fault that it must find.

    `canary` is empty for an engine without planted faults. `corpus` is the digest of the initial traces, empty for
    none. Situations and areas in `focus` are generated more often.
    """

    profile: Profile = "mixed"
    seed: int = 0
    faults: tuple[str, ...] = ()
    canary: str = CANARY
    corpus: str = ""
    focus: tuple[str, ...] = ()
    run_on: RunOn = RunOn()

    @field_validator("run_on")
    @classmethod
    def _is_a_configuration(cls, run_on: RunOn) -> RunOn:
        RunConfig.of(run_on)
        return run_on


def kills_worker(verdict: Verdict | None) -> bool:
    """Return whether a verdict is that a trace kills every worker that runs it."""
    return isinstance(verdict, Crashed) and verdict.where == KILLED


class FindingState(Value):
    """Stored state of a finding.

    `first` is the number of the first trace of the hunt with this failure, `size` the number of its events, `verdict`
    its verdict; None for a trace that was not judged yet. A `closed` finding has its last judgement. It has an artefact
    unless its shrunk trace has the fingerprint of the earlier finding `same_as`. `face_of` is an earlier finding with
    the same cause.
    """

    bug: str
    first: int
    size: int
    trace: Trace
    verdict: Finding | None
    stage: Literal["explain", "shrink", "confirm", "confirmed", "closed"] = "explain"
    shrinking: Shrinking | None = None
    judgement: Judgement | None = None
    artefact: ArtefactPath | None = None
    same_as: str | None = None
    face_of: str | None = None

    @classmethod
    def of(cls, hit: Hit, first: int) -> "FindingState":
        """Return the first state of a finding of a hunt."""
        return cls(bug=hit.signature.bug, first=first, size=len(hit.trace.events), trace=hit.trace, verdict=hit.verdict)

    @classmethod
    def unseen(cls, trace: Trace) -> "FindingState":
        """Return the state of a finding for a user's trace that no hunt has judged."""
        return cls(bug="", first=0, size=len(trace.events), trace=trace, verdict=None)

    @property
    def smallest(self) -> Judgement | None:
        """Return the judgement of the smallest trace so far; None before any."""
        if self.judgement is not None:
            return self.judgement
        seen = self if self.shrinking is None else self.shrinking
        return None if seen.verdict is None else Judgement(verdict=seen.verdict, trace=seen.trace, schedules=1)

    @property
    def is_refuted(self) -> bool:
        """Return whether the failure was found not to depend on the trace."""
        return self.judgement is not None and isinstance(self.judgement.verdict, Lost)

    @property
    def is_unconfirmed(self) -> bool:
        """Whether a slower run still has to confirm the finding."""
        seen = self.judgement or self
        return seen.verdict is not None and unconfirmed_reason(seen.verdict) is not None

    @property
    def is_distinct(self) -> bool:
        """Return whether the finding counts: neither dropped nor a duplicate.

        A finding with the cause of an earlier one is a duplicate, too.
        """
        return self.same_as is None and self.face_of is None and not self.is_refuted

    @property
    def cause(self) -> str | None:
        """Return the planted fault without which the smallest trace does not fail alike.

        None if unknown.

        It is known only if the shrinker tried all candidates, since one of them has no fault.
        """
        if self.shrinking is None or self.judgement is None or self.shrinking.spent >= self.shrinking.limit:
            return None
        trace = self.judgement.trace
        is_smallest = trace.events == self.shrinking.trace.events and is_finding(self.judgement.verdict)
        return trace.faults[0] if is_smallest and len(trace.faults) == 1 else None

    @property
    def kills(self) -> bool:
        """Whether the finding is that its trace kills every worker that runs it."""
        return kills_worker(self.verdict)
