"""Check of one trace: run it under one schedule and judge it, by whatever the engine shows.

Verifies: everything `checker`, `referee`, `races` and `contracts` verify, progress, and that what was expected
happened; of an engine that shows outputs alone what `output_check` verifies.
Does not verify: other schedules of the same trace (`worker` runs those).
"""

from collections.abc import Callable
from dataclasses import dataclass

from scenarios.capabilities import lacking
from scenarios.events import NoValidToken, Stall
from scenarios.trace import Trace
from workers.judge.checker import Checker
from workers.judge.contracts.breach import PLANE
from workers.judge.races import Race, RaceDetector
from workers.lanes.lane import Deadlock, Observer
from workers.oracle.tape import Tapes
from workers.record.observation import VARIABLES
from workers.record.verdict import NO_STATS, Agreed, Crashed, Difference, Diverged, Stats, Stuck, Vacuous, Verdict
from workers.run.agreed_run import AgreedRun, Repetition
from workers.run.drive import Drive, scripts_of
from workers.run.output_check import broken_contract, check_outputs, not_hit, place_of
from workers.run.references import References
from workers.run.warm_up import warm_up
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, DeviceError, RunConfig, TargetKind, Watch


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is watched, none of which changes what the engine does.

    `races` judges every access; `blame` keeps the last writers of every buffer (slower); `without` removes waits and
    records, see `workers.lanes.base`; `observe` makes an observer of the lanes out of the race detector; runs of one
    trace may share what they are `compared` with.
    """

    races: bool = True
    blame: bool = False
    without: frozenset[tuple[str, str]] = frozenset()
    observe: Callable[[RaceDetector], Observer] | None = None
    compared: References | None = None


class Run:
    """One engine that logs its decisions, followed step by step."""

    def __init__(
        self,
        trace: Trace,
        tapes: Tapes,
        options: Options,
        kind: TargetKind | None = None,
        config: RunConfig = DEFAULT_CONFIG,
    ) -> None:
        kind = kind if kind is not None else kind_of(config.engine)
        capabilities = kind.capabilities
        self.trace = trace
        self._options = options
        self.detector = RaceDetector(capabilities.lanes) if options.races and capabilities.lanes else None
        scripts = scripts_of(trace, tapes, capabilities)
        self.checker = Checker(trace, tapes)
        observer = options.observe(self.detector) if options.observe and self.detector else None
        self.target = kind.open(trace, config, Watch(self.detector, options.blame, options.without, observer))
        self.drive = Drive(trace, self.target, scripts, capabilities.words_from_prompt)
        # For runs of the same trace under other schedules.
        self._kept = AgreedRun(trace, self.checker) if options.compared is not None else None
        self._work = work_of(trace)
        self._samples_taken = sum(isinstance(event, NoValidToken) for event in trace.events)
        self._held_back = sum(event.ticks for event in trace.events if isinstance(event, Stall))
        # The bound on steps only grows: it is asked for again where the last answer is passed.
        self._ticks_known = 0

    @property
    def probes(self) -> dict[str, int]:
        """What has been counted so far, by the engine and by the oracle."""
        oracle = self.checker.oracle
        drawn = {"random_decision": oracle.num_decisions, "ambiguous_decision": oracle.num_ambiguous}
        return {**self.target.probes, **drawn, **oracle.happened}

    def stats(self) -> Stats:
        """Return what the run did so far."""
        progress = self.target.progress()
        return Stats(
            requests=progress.requests,
            steps=self.drive.tick,
            commits=progress.commits,
            captures=self.checker.num_compared,
            run_ahead_max=progress.run_ahead_max,
            digest=self.target.digest(),
            probes={name: count for name, count in sorted(self.probes.items()) if count},
            planes=tuple(sorted({*self.checker.planes, PLANE, "liveness", *(("races",) if self.detector else ())})),
        )

    def to_end(self) -> Verdict:
        """Step until the engine has drained, something differs, or it makes no progress."""
        drive, target = self.drive, self.target
        while not drive.drained():
            if drive.tick > self._ticks_known:
                self._ticks_known = self._ticks_max()
                if drive.tick > self._ticks_known:
                    waiting = self.checker.referee.waiting()
                    return Stuck(stats=self.stats(), reason=f"not drained after {drive.tick} steps; {waiting}")
            drive.step()
            found = self._follow()
            if found is not None:
                return Diverged(stats=self.stats(), difference=self._explained(found))
        target.drain()
        found = self._follow() or self.checker.at_end(target.left_over(), target.digest()) or self._found_beside()
        if found is not None:
            return Diverged(stats=self.stats(), difference=self._explained(found))
        if self._kept is not None and self._options.compared is not None:
            self._kept.ended(target.left_over(), target.digest())
            self._options.compared.agreed = self._kept
        return self._expected()

    def _found_beside(self) -> Difference | None:
        """Return what is wrong at the end with what neither log nor captures show: a race, or a broken contract."""
        if self.detector is not None and self.detector.race is not None:
            return _unordered(self.detector.race)
        breach = self.drive.breach()
        return broken_contract(breach, self.drive.tick) if breach is not None else None

    def repeated(self, agreed: AgreedRun) -> Verdict | None:
        """Step until the engine has drained; None, as soon as it shows anything that the agreed run did not."""
        drive, target, repetition = self.drive, self.target, Repetition(agreed)
        while not drive.drained():
            if drive.tick > agreed.steps:
                return None
            drive.step()
            if not repetition.goes_on(target.take_log(), target.take_captures()):
                return None
        target.drain()
        left, digest = target.left_over(), target.digest()
        is_same = repetition.goes_on(target.take_log(), target.take_captures()) and repetition.ends(left, digest)
        if not is_same or self._found_beside() is not None:
            return None
        self.checker = agreed.checker
        return self._expected()

    def _ticks_max(self) -> int:
        """Return the bound on steps: a request is computed once, and once more for each time it is set back.

        For want of blocks that is at most once for each token: who is preempted makes room for one that gets on.
        """
        probes = self.target.probes
        work, for_blocks = self.trace.spec.depth + self._work, probes.get("preemption_by_blocks", 0)
        again = 1 + probes.get("preemption", 0) - for_blocks + min(for_blocks, work) + self._samples_taken
        return self.drive.events.last_tick + self._held_back + work * again

    def _follow(self) -> Difference | None:
        """Compare what is new. A difference on the host is held against everything the device did before it."""
        log = self.target.take_log()
        found = self.checker.follow(log)
        if found is not None:
            self.target.drain()
        captures = self.target.take_captures()
        if self._kept is not None:
            self._kept.keep(log, captures)
        on_device = self.checker.captures(captures)
        if on_device is None or found is None:
            return found or on_device
        # What the host does with the results of a step follows from what the device computed in it.
        until = max(found.step + _follows_device(found), 1 + self.checker.step_processed)
        return on_device if on_device.step < until else found

    def difference_so_far(self) -> Diverged | None:
        """Compare what an engine that can go no further has shown."""
        target = self.target
        checker = self.checker
        found = checker.follow(target.take_log()) or checker.captures(target.take_captures()) or checker.unexplained()
        return Diverged(stats=self.stats(), difference=self._explained(found)) if found is not None else None

    def _explained(self, found: Difference) -> Difference:
        race = self.detector.race if self.detector is not None else None
        variable = VARIABLES.get(found.variable)
        writers = self.target.last_writers(found.step, found.variable)
        if variable is not None and not writers and variable.clock != "device":
            writers = (f"host:{variable.point}@{found.step}",)
        return found.model_copy(update={"writers": writers, "missing_order": str(race) if race else None})

    def _expected(self) -> Verdict:
        stats = self.stats()
        missing = not_hit(self.trace, stats)
        for fault in self.trace.faults:
            if f"fault {fault}" not in stats.probes:
                missing.append(f"fault {fault}: never reached")
        if missing:
            return Vacuous(stats=stats, missing=tuple(missing))
        return Agreed(stats=stats)


def _unordered(race: Race) -> Difference:
    """Return a race as a difference: an order was expected, there is none."""
    return Difference(
        plane="races",
        variable=race.buffer,
        request="",
        commit="",
        step=race.step,
        position=None,
        expected=f"{race.first}, then {race.second}, in this order",
        actual="no order",
    )


def _follows_device(host: Difference) -> bool:
    """Tell whether a host difference is later than the device captures of its own step."""
    variable = VARIABLES.get(host.variable)
    return variable is not None and variable.point in ("corrected", "processed")


def work_of(trace: Trace) -> int:
    """Return a bound on the tokens that the requests of an explicit trace compute, each once."""
    work = 0
    for event in trace.submits():
        assert isinstance(event.prompt, tuple), "the trace is explicit"
        # A request that follows a grammar waits until each of its steps has been processed.
        work += len(event.prompt) + event.max_tokens * (trace.spec.depth if event.params.grammar else 1)
    return work


def check(
    trace: Trace,
    tapes: Tapes,
    options: Options = Options(),
    kind: TargetKind | None = None,
    config: RunConfig = DEFAULT_CONFIG,
) -> Verdict:
    """Run an explicit trace under its own schedule and return the verdict.

    `kind` is the engine of the configuration, if it is not given. Where it logs its decisions the oracle judges every
    step, else its outputs are compared with those of other runs.

    Raises:
        DeviceError: the trace cannot run on that device.
    """
    kind = kind if kind is not None else kind_of(config.engine)
    lacks = lacking(trace, kind.capabilities)
    assert lacks is None, f"engine {kind.name}: {lacks}"
    unmet = kind.unmet(trace)
    if unmet is not None:
        return Vacuous(stats=NO_STATS, missing=(unmet,))
    if not kind.capabilities.logs_decisions:
        return check_outputs(trace, tapes, kind, config, options.races, options.compared, options.blame)
    warm_up(config)
    agreed = options.compared.agreed if options.compared is not None else None
    if agreed is not None and agreed.is_of(trace) and config.device != "cuda":
        # On lanes that are simulated whatever was seen is seen again, if it has to be judged after all.
        verdict = _repeated(trace, tapes, options, kind, config, agreed)
        if verdict is not None:
            return verdict
    run: Run | None = None
    try:
        run = Run(trace, tapes, options, kind, config)
        return run.to_end()
    except Deadlock as deadlock:
        assert run is not None, "an engine that starts waits for nothing"
        return Stuck(stats=run.stats(), reason=str(deadlock))
    except DeviceError:
        raise
    except Exception as error:
        if isinstance(error.__cause__, DeviceError):
            raise error.__cause__ from None
        return _broken_off(error, run)
    finally:
        if run is not None:
            run.target.close()


def _repeated(
    trace: Trace, tapes: Tapes, options: Options, kind: TargetKind, config: RunConfig, agreed: AgreedRun
) -> Verdict | None:
    """Run a trace of which a run agreed under another schedule; None if this run is not the same."""
    run: Run | None = None
    try:
        run = Run(trace, tapes, options, kind, config)
        return run.repeated(agreed)
    except DeviceError:
        raise
    except Exception:
        return None
    finally:
        if run is not None:
            run.target.close()


def _broken_off(error: Exception, run: Run | None) -> Verdict:
    """Return the verdict on a run that raised, or on an engine that could not even be started."""
    # What was captured before may show why: a crash is often the harm of a difference.
    found = run.difference_so_far() if run is not None else None
    if found is not None:
        return found
    race = run.detector.race if run is not None and run.detector is not None else None
    return Crashed(
        stats=run.stats() if run is not None else NO_STATS,
        error=f"{type(error).__name__}: {error}",
        where=place_of(error),
        missing_order=str(race) if race is not None else None,
    )
