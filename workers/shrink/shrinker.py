"""Shrinker: an immutable state that proposes smaller traces and processes their verdicts.

Deterministic: the result depends only on the verdicts, not on how many candidates are tried at a time. Bounded: at most
`limit` candidates. Resumable: a `Shrinking` is the whole state. It runs nothing itself.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated

from pydantic import Field

from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.verdict import Crashed, Diverged, Stuck, detected_race
from workers.shrink.fingerprint import Signature, signature_of
from workers.shrink.reductions import PASSES, to_harm, valid

LIMIT = 600
# Laps that search for a wrong value caused by a bare race: on its smallest trace, then on the trace it was found on.
_SEEKING = (2, 3)

Finding = Annotated[Diverged | Crashed | Stuck, Field(discriminator="kind")]


class TriedCandidates(Value):
    """Result of running candidates: how many ran, and the verdict of the first that failed.

    Only the last may have failed, with verdict `found`.
    """

    count: int
    found: Finding | None = None


class Shrinking(Value):
    """State of the shrinker: the smallest failing trace so far, and the next candidate.

    - `trace`: the smallest so far; it fails with `verdict`.
    - `made_at`: the pass and slot that made it. Its candidates are those from there to the last pass (lap 0), then
      those from the first pass up to there (lap 1).
    - `at`: lap, pass and slot of the next candidate. `spent`: the number tried so far, on this and larger traces.
    - `met`: for a bare race, the trace it was found on. Later laps search for a trace with a wrong value of the race;
      once one is found, smaller traces must show that value wrong.
    """

    trace: Trace
    verdict: Finding
    target: Signature
    limit: int = LIMIT
    spent: int = 0
    made_at: tuple[int, int] = (0, 0)
    at: tuple[int, int, int] = (0, 0, 0)
    met: Trace | None = None

    @classmethod
    def of(cls, trace: Trace, verdict: Diverged | Crashed | Stuck, limit: int = LIMIT) -> "Shrinking":
        """Return the initial state for a failing explicit trace (prompts as token ids)."""
        target = signature_of(verdict, trace)
        assert target is not None, "a finding has a signature"
        # An engine that reports the effect of a race itself needs no search for it.
        order = detected_race(verdict)
        seeks = target.is_bare_race and (order is None or order.harm is None)
        return cls(trace=trace, verdict=verdict, target=target, limit=limit, met=trace if seeks else None)

    @property
    def wanted(self) -> Signature:
        """The signature that the next candidate's finding must have for it to be accepted."""
        if self.met is None:
            return self.target
        at, _ = next(self._untried(), (self.at, None))
        return self.target.harm if at[0] in _SEEKING else self.target

    def proposals(self, most: int) -> list[Trace]:
        """Return the next candidates to run, in order; none once shrinking has ended."""
        return [trace for _, trace in self._next(most)]

    def after(self, tried: TriedCandidates) -> "Shrinking":
        """Return the state after some proposals ran, up to the first that was accepted."""
        (lap, index, slot), trace = self._next(tried.count)[-1]
        state = {"spent": self.spent + tried.count, "at": (lap, index, slot + 1)}
        if tried.found is not None:
            made_at = (0, 0) if lap in _SEEKING else (index, slot)
            state |= {"trace": trace, "verdict": tried.found, "made_at": made_at, "at": (0, *made_at)}
            found = signature_of(tried.found, trace)
            if self.target.is_bare_race and found is not None and not found.is_bare_race:
                state |= {"target": found, "met": None}
        return self.model_copy(update=state)

    def _next(self, most: int) -> list[tuple[tuple[int, int, int], Trace]]:
        """Return up to `most` next candidates that share one required failure signature."""
        found: list[tuple[tuple[int, int, int], Trace]] = []
        for at, trace in islice(self._untried(), min(most, self.limit - self.spent)):
            if found and (found[0][0][0] in _SEEKING) is not (at[0] in _SEEKING):
                break
            found.append((at, trace))
        return found

    def _untried(self) -> Iterator[tuple[tuple[int, int, int], Trace]]:
        """Yield the remaining candidates for the smallest trace, each with its (lap, pass, slot)."""
        first, _ = self.made_at
        laps = [(0, index) for index in range(first, len(PASSES))] + [(1, index) for index in range(first + 1)]
        for lap, index in laps:
            if (lap, index) < self.at[:2]:
                continue
            for slot, candidate in enumerate(PASSES[index](self.trace, self.verdict)):
                is_mine = index != first or ((index, slot) >= self.made_at) is (lap == 0)
                if is_mine and (lap, index, slot) >= self.at and candidate is not None and valid(candidate):
                    yield (lap, index, slot), candidate
        yield from self._harmful()

    def _harmful(self) -> Iterator[tuple[tuple[int, int, int], Trace]]:
        """Yield the remaining candidates in which the race may cause a wrong value."""
        for lap, trace in zip(_SEEKING, (self.trace, self.met), strict=True):
            for slot, candidate in enumerate(to_harm(trace, self.verdict) if self.met and trace else ()):
                if (lap, 0, slot) >= self.at and candidate is not None and valid(candidate):
                    yield (lap, 0, slot), candidate


Try = Callable[[list[Trace], Signature], TriedCandidates]


def shrink(state: Shrinking, attempt: Try, most: int = 1) -> Shrinking:
    """Run candidates, at most `most` at a time, until none is left; return the final state."""
    while candidates := state.proposals(most):
        state = state.after(attempt(candidates, state.wanted))
    return state


def num_exceptions(trace: Trace) -> int:
    """Return how far a schedule is from plain eager: delayed ops, plus 1 for another policy."""
    return len(trace.schedule.holds) + (trace.schedule.policy != "eager")
