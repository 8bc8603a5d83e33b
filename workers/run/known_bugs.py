"""Known bugs in a finding: those whose fixes make it disappear.

Verifies: a finding is known if and only if its trace does not show it on the engine with the fixes of known bugs.
Does not verify: a finding that two fixes change only together with a third one is named by a smallest set of fixes, and
other sets may exist.
"""

from collections.abc import Callable, Sequence

from scenarios.trace import Trace
from workers.edits.fix import ALL, fixes_of
from workers.edits.proofs import proofs_of
from workers.oracle.tape import Tapes
from workers.record.verdict import Verdict
from workers.run.check import judged
from workers.run.engine_run import Options
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.registry import kind_of
from workers.targets.target import DeviceError, RunConfig


class KnownBugs:
    """Known bugs by the findings that they cause."""

    def __init__(self, tapes: Tapes) -> None:
        self._tapes = tapes
        self._last: dict[str, tuple[str, ...]] = {}

    def of(self, verdict: Verdict, trace: Trace, config: RunConfig) -> tuple[str, ...]:
        """Return a smallest set of known bugs with whose fixes a trace does not show a finding; empty for a new one.

        Known bugs of the same fingerprint are tried first: the last answer, and those whose own traces have it.
        """
        kind, shown = kind_of(config.engine), signature_of(verdict, trace)
        made = kind.fixed(config).names
        names = [name for name in kind.fixed(config.model_copy(update={"fixes": ALL})).names if name not in made]
        if shown is None or not names:
            return ()
        ran: set[str] = set()
        answers: dict[frozenset[str], bool] = {}

        def disappears(tried: Sequence[str]) -> bool:
            fixes = frozenset(tried)
            if fixes not in answers:
                fixed = config.model_copy(update={"fixes": ",".join(sorted({*made, *tried}))})
                try:
                    seen = self._signature(trace, fixed, ran)
                    answers[fixes] = seen is None or not shown.is_still(seen)
                except DeviceError:
                    # The engine does not start with these fixes: that names no bug.
                    answers[fixes] = False
            return answers[fixes]

        proofs = proofs_of()
        alike = [name for name in names if name in proofs and proofs[name].bug == shown.bug]
        for likely in (self._last.get(shown.bug, ()), alike):
            if likely and disappears(likely):
                return self._keep(shown.bug, smallest(disappears, likely))
        if not disappears(names):
            return ()
        fixes = fixes_of(kind.package)
        found = smallest(disappears, [name for name in names if fixes[name].has_run(ran)])
        # A fix outside the functions that ran may matter too.
        return self._keep(shown.bug, found if found and disappears(found) else smallest(disappears, names))

    def _signature(self, trace: Trace, config: RunConfig, ran: set[str]) -> Signature | None:
        """Return what a trace shows in a new process of an engine; add to the edited functions that `ran` there."""
        kind = kind_of(config.engine)
        kind.prepare(config)
        try:
            verdict = judged(trace, self._tapes, Options(confirm="never"), kind, config)
            ran.update(kind.newly_run(config))
        finally:
            kind.restart(config)
        return signature_of(verdict, trace)

    def _keep(self, bug: str, names: tuple[str, ...]) -> tuple[str, ...]:
        self._last[bug] = names
        return names


def smallest(holds: Callable[[Sequence[str]], bool], names: Sequence[str]) -> tuple[str, ...]:
    """Return a smallest part of names of which something holds that holds of all of them, by halving.

    No name can be left out of the result; for one name it takes about two tries for each halving.
    Source: Junker, QuickXplain, AAAI 2004.
    """

    def needed(others: tuple[str, ...], rest: tuple[str, ...], is_new: bool) -> tuple[str, ...]:
        if is_new and holds(others):
            return ()
        if len(rest) == 1:
            return rest
        first, second = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        of_second = needed((*others, *first), second, True)
        of_first = needed((*others, *of_second), first, bool(of_second))
        return (*of_first, *of_second)

    return tuple(sorted(needed((), tuple(names), False))) if names else ()
