"""Shrinker: a value that proposes candidates for a smaller failing trace and takes verdicts.

Deterministic: the result depends on the verdicts alone, not on how many candidates are tried at a time. Bounded: at
most `limit` candidates count. Resumable: a `Shrinking` is the whole state. It runs nothing itself.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated

from pydantic import Field

from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.verdict import Crashed, Diverged, Stuck, missing_order_of
from workers.shrink.fingerprint import Signature, signature_of
from workers.shrink.reductions import PASSES, to_harm, valid

LIMIT = 600
# Laps in which the harm of a bare race is looked for: of its smallest trace, then of the one it was met on.
_SEEKING = (2, 3)

Finding = Annotated[Diverged | Crashed | Stuck, Field(discriminator="kind")]


class Tried(Value):
    """Result of trying candidates in order: `count` of them, of which only the last may be `found`."""

    count: int
    found: Finding | None = None


class Shrinking(Value):
    """How far a trace has been shrunk.

    `trace` is the smallest so far and fails with `verdict`. It was made in pass and slot `made_at`; its candidates are
    those from there to the last (lap 0) and from the first to there (lap 1). `at` is the lap, pass and slot of the
    next one to try, `spent` the number tried so far, on this and larger traces.
    For a bare race, `met` on a trace, one in which a value is wrong of it is looked for in laps after those. Once one
    is found, on whatever lap, that is what smaller traces have to show.
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
        """Return the state in which nothing has been tried on an explicit trace that fails with a verdict."""
        target = signature_of(verdict, trace)
        assert target is not None, "a finding has a signature"
        # An engine that says itself what a race did is not asked again.
        order = missing_order_of(verdict)
        seeks = target.is_bare_race and (order is None or order.harm is None)
        return cls(trace=trace, verdict=verdict, target=target, limit=limit, met=trace if seeks else None)

    @property
    def wanted(self) -> Signature:
        """Return what the next proposals have to fail with."""
        if self.met is None:
            return self.target
        at, _ = next(self._untried(), (self.at, None))
        return self.target.harm if at[0] in _SEEKING else self.target

    def proposals(self, most: int) -> list[Trace]:
        """Return the next candidates to try, in this order; none when shrinking has ended."""
        return [trace for _, trace in self._next(most)]

    def after(self, tried: Tried) -> "Shrinking":
        """Return the state once some of the proposals were tried, up to and with the first that fails as wanted."""
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
        """Return the next candidates that all have to fail with the same."""
        found: list[tuple[tuple[int, int, int], Trace]] = []
        for at, trace in islice(self._untried(), min(most, self.limit - self.spent)):
            if found and (found[0][0][0] in _SEEKING) is not (at[0] in _SEEKING):
                break
            found.append((at, trace))
        return found

    def _untried(self) -> Iterator[tuple[tuple[int, int, int], Trace]]:
        """Yield the candidates of the smallest trace from `at` on, each with its lap, pass and slot."""
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
        """Yield what may show the harm of a bare race, from `at` on."""
        for lap, trace in zip(_SEEKING, (self.trace, self.met), strict=True):
            for slot, candidate in enumerate(to_harm(trace, self.verdict) if self.met and trace else ()):
                if (lap, 0, slot) >= self.at and candidate is not None and valid(candidate):
                    yield (lap, 0, slot), candidate


Try = Callable[[list[Trace], Signature], Tried]


def shrink(state: Shrinking, attempt: Try, most: int = 1) -> Shrinking:
    """Return the state in which shrinking ends, trying at most `most` candidates at a time."""
    while candidates := state.proposals(most):
        state = state.after(attempt(candidates, state.wanted))
    return state


def num_exceptions(trace: Trace) -> int:
    """Count a schedule's departures from the plainest: its exceptions, and a base policy that is not eager."""
    return len(trace.schedule.holds) + (trace.schedule.policy != "eager")
