"""Known bugs in a finding: those whose fixes make it disappear.

Verifies: a finding is known if and only if its trace does not show it on the engine with the fixes of known bugs.
Does not verify: a finding that two fixes change only together with a third one is named by a smallest set of fixes, and
other sets may exist.
"""

from collections.abc import Callable, Sequence

from scenarios.trace import Trace
from workers.edits.fix import ALL, fixes_of
from workers.oracle.tape import Tapes
from workers.record.verdict import Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.registry import kind_of
from workers.targets.target import RunConfig


class KnownBugs:
    """Known bugs by the findings that they cause; the last answer for a signature is tried first for the next one."""

    def __init__(self, tapes: Tapes) -> None:
        self._tapes = tapes
        self._last: dict[Signature, tuple[str, ...]] = {}

    def of(self, verdict: Verdict, trace: Trace, config: RunConfig) -> tuple[str, ...]:
        """Return a smallest set of known bugs with whose fixes a trace does not show a finding; empty for a new one."""
        kind, shown = kind_of(config.engine), signature_of(verdict, trace)
        every, made = kind.fixed(config.model_copy(update={"fixes": ALL})).names, kind.fixed(config).names
        names = [name for name in every if name not in made]
        if shown is None or not names:
            return ()
        ran: set[str] = set()

        def disappears(tried: Sequence[str]) -> bool:
            fixed = config.model_copy(update={"fixes": ",".join(sorted({*made, *tried}))})
            try:
                seen = signature_of(check(trace, self._tapes, Options(confirm="never"), config=fixed), trace)
                ran.update(kind.newly_run(fixed))
            finally:
                kind.restart(fixed)
            return seen is None or not shown.is_still(seen)

        last = self._last.get(shown, ())
        if last and disappears(last):
            return last
        if not disappears(names):
            return ()
        fixes = fixes_of(kind.package)
        executed = [name for name in names if fixes[name].has_run(ran)]
        self._last[shown] = smallest(disappears, executed)
        return self._last[shown]


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
