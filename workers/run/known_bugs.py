"""Find the known bugs that explain a finding, and the applied fixes that it needs.

Verifies:
- a finding is known if and only if it does not reproduce on the engine with the fixes of all known bugs;
- a finding needs fixes if and only if its trace agrees on the engine without them.

Does not verify: that the named set of fixes is the only one. It is a smallest set; other sets may exist.
"""

from collections.abc import Callable, Mapping, Sequence

from scenarios.trace import Trace
from workers.edits.fix import ALL, Fix, fixes_of
from workers.edits.proofs import proofs_of
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Judgement, Verdict, known_causes, with_required_fixes
from workers.run.check import judge_trace
from workers.run.engine_run import Options
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.registry import target_kind
from workers.targets.target import DeviceError, RunConfig


class KnownBugs:
    """Finds the known bugs that explain a finding; caches the last answer per fingerprint."""

    def __init__(self, value_cache: ModelValueCache) -> None:
        self._value_cache = value_cache
        self._last: dict[str, tuple[str, ...]] = {}

    def of(self, verdict: Verdict, trace: Trace, config: RunConfig) -> tuple[str, ...]:
        """Return a minimal set of known bugs whose fixes together remove a finding.

        The finding disappears with the fixes of all bugs of the set.
        Known bugs of the same fingerprint are tried first: the last answer, then bugs with a proof of that fingerprint.
        """
        kind, shown = target_kind(config.engine), signature_of(verdict, trace)
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
                    # The engine does not start with these fixes: they explain nothing.
                    answers[fixes] = False
            return answers[fixes]

        proofs = proofs_of()
        alike = [name for name in names if name in proofs and proofs[name].bug == shown.bug]
        for likely in (self._last.get(shown.bug, ()), alike):
            if likely and disappears(likely):
                return self._keep(shown.bug, smallest(disappears, likely))
        if not disappears(names):
            return ()
        return self._keep(shown.bug, _smallest_that_ran(disappears, names, ran, fixes_of(kind.package)))

    def needed(self, verdict: Verdict, trace: Trace, config: RunConfig) -> tuple[str, ...]:
        """Return a minimal set of applied fixes such that without them the finding is gone.

        It is empty if the trace does not agree without them. A finding that needs fixes is a side effect of them, or a
        bug that a known bug hides. Fixes of races are always applied: without them most traces with async scheduling
        have a race.
        """
        kind, shown = target_kind(config.engine), signature_of(verdict, trace)
        fixes, made = fixes_of(kind.package), kind.fixed(config).names
        races, names = ([name for name in made if fixes[name].race is race] for race in (True, False))
        if shown is None or not names:
            return ()
        ran: set[str] = set()

        def seen(tried: Sequence[str]) -> Signature | None:
            fixed = config.model_copy(update={"fixes": ",".join(sorted({*races, *tried}))})
            return self._signature(trace, fixed, ran)

        def appears(tried: Sequence[str]) -> bool:
            signature = seen(tried)
            return signature is not None and shown.is_still(signature)

        try:
            if seen(()) is not None:
                return ()
            # If the finding does not reproduce with all fixes, it depends on something else.
            return _smallest_that_ran(appears, names, ran, fixes) if appears(names) else ()
        except DeviceError:
            # The engine does not start with some of the fixes.
            return ()

    def _signature(self, trace: Trace, config: RunConfig, ran: set[str]) -> Signature | None:
        """Run a trace in a new engine process; return the signature of its finding, or None.

        Add the edited functions that ran there to `ran`.
        """
        kind = target_kind(config.engine)
        kind.prepare(config)
        try:
            verdict = judge_trace(trace, self._value_cache, Options(confirm="never"), kind, config)
            ran.update(kind.newly_run(config))
        finally:
            kind.restart(config)
        return signature_of(verdict, trace)

    def _keep(self, bug: str, names: tuple[str, ...]) -> tuple[str, ...]:
        self._last[bug] = names
        return names


def with_needed_fixes(judgement: Judgement, config: RunConfig) -> Judgement:
    """Return a judgement in which a new finding names the applied fixes it depends on.

    Each try starts a new engine. A judgement without a new finding is returned unchanged.
    """
    verdict = judgement.verdict
    if known_causes(verdict):
        return judgement
    needs = KnownBugs(ModelValueCache()).needed(verdict, judgement.trace, config)
    return judgement.model_copy(update={"verdict": with_required_fixes(verdict, needs)})


def _smallest_that_ran(
    holds: Callable[[Sequence[str]], bool], names: Sequence[str], ran: set[str], fixes: Mapping[str, Fix]
) -> tuple[str, ...]:
    """Return a minimal set of fixes for which `holds`, if possible of code that ran.

    It is searched among the fixes of functions that ran first, then among all fixes.
    """
    found = smallest(holds, [name for name in names if fixes[name].has_run(ran)])
    # A fix outside the functions that ran may matter too.
    return found if found and holds(found) else smallest(holds, names)


def smallest(holds: Callable[[Sequence[str]], bool], names: Sequence[str]) -> tuple[str, ...]:
    """Return a minimal subset of `names` for which `holds(subset)` is true, found by halving.

    `holds` must be true for all names together.
    No name can be left out of the result. For a result of one name it takes about two tries per halving.
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
