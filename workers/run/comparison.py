"""Compare a run's output tokens and logprobs with reference runs on the same engine.

Verifies:
- everything that `judge.outputs` compares, except after near ties of inexact arithmetic;
- also requests whose name was submitted again, if the reference run differs only in its schedule or runs each request
  alone;
- that a drafter proposes the same draft tokens as in the synchronous run (`judge.proposals`);
- that the run does no more work than the synchronous run or the release (`judge.efficiency`).
It also finds out whether the synchronous run keeps a contract that is broken.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from scenarios.events import Schedule
from scenarios.trace import Trace
from workers.judge.drafter_inputs import Proposals, proposals_of
from workers.judge.efficiency import Effort, effort_of, first_loss_to_release, first_loss_to_synchronous
from workers.judge.history import History
from workers.judge.judge import shows_plans
from workers.judge.outputs import FailedRun, Outputs, compare
from workers.judge.proposals import first_different_draft
from workers.lanes.lane import Deadlock
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference, Elsewhere
from workers.record.rules import Reference
from workers.record.verdict import NotDrained, Work
from workers.run.engine_run import UNJUDGED, Options, Run, error_text, site_of
from workers.run.references import (
    NUM_TIE_LOGPROBS,
    ReferenceRun,
    References,
    Requests,
    near_tie_trace,
    references,
)
from workers.run.varying_outputs import varying
from workers.targets.target import DEFAULT_CONFIG, DeviceError, EngineFailed, RunConfig, TargetKind


def outputs_of(
    trace: Trace,
    value_cache: ModelValueCache,
    kind: TargetKind,
    config: RunConfig = DEFAULT_CONFIG,
    options: Options = UNJUDGED,
    keep: Callable[[Run], object] | None = None,
) -> Outputs | FailedRun:
    """Run a trace without judges; return each request's output, or the error of a crash.

    If the run ends normally, it is passed to `keep`.

    Raises:
        DeviceError: the trace cannot run on that device.
    """
    try:
        run = Run(trace, value_cache, options, kind, config)
        try:
            found = run.to_end()
            if isinstance(found, NotDrained):
                return FailedRun("it does not end")
            if keep is not None:
                keep(run)
            return run.target.outputs()
        finally:
            run.target.close()
    except Deadlock:
        return FailedRun("deadlock")
    except DeviceError:
        raise
    except Exception as error:
        text = error_text(error) if isinstance(error, EngineFailed) else type(error).__name__
        return FailedRun(text, site_of(error))


@dataclass(slots=True, eq=False)
class Comparison:
    """Comparison of a run's outputs with its reference runs.

    `given` is the trace before sessions and continuations got their prompts. `count` is the number of reference runs so
    far, `ties` has the requests that diverged from one at a near tie of two logits, `work` the work of each
    pair of runs that was compared: asynchronous and synchronous, overlay and release.
    """

    given: Trace
    trace: Trace
    value_cache: ModelValueCache
    kind: TargetKind
    config: RunConfig
    compared: References
    requests: Requests
    count: int = 0
    ties: set[str] = field(default_factory=set)
    work: dict[str, Work] = field(default_factory=dict)

    def first_difference(self, seen: Outputs, steps: int, history: History | None = None) -> Difference | None:
        """Return the first output or draft token that differs from a reference run, or None."""
        for reference, other in self.compared.needed(self._references()):
            self.count += 1
            wanted = self.compared.outputs_of(other, self._outputs_of)
            if reference is not Reference.ALONE:
                found = self._difference_without_ties(self.trace, seen, wanted)
            else:
                # Also compare requests whose name was submitted again.
                found = self._difference_without_ties(self.requests.judged(self.trace), self.requests.outputs, wanted)
            if found is None and other.model_copy(update={"schedule": self.given.schedule}) == self.given:
                # The same trace under another schedule: the same requests were accepted under each name.
                found = self._difference_without_ties(
                    self.requests.judged(self.trace), self.requests.outputs, self._schedule_independent(wanted)
                )
            if found is not None:
                name = self.requests.names.get(found.request, found.request)
                return found.model_copy(update={"reference": reference, "request": name, "step": steps})
            proposed = self.compared.proposed.get(other.model_dump_json())
            # Not with a KV connector: a drafter may still overwrite its loaded entries.
            if proposed and reference is Reference.SYNCHRONOUS and not self.trace.spec.has_connector:
                found = first_different_draft(self.trace, _proposals(history), proposed)
                if found is not None:
                    return found.model_copy(update={"reference": reference})
        return None

    def first_loss(self, history: History) -> Difference | None:
        """Return the first quantity of work that is worse than in a reference run, or None.

        The synchronous run is compared if `first_difference` needed it. The release runs the same trace.
        """
        seen = effort_of(history)
        # In which tick a data-parallel rank gets a message, and so its steps, depends on the schedule.
        if seen is None or self.trace.spec.data_ranks > 1:
            return None
        for reference, other in self._references():
            wanted = self.compared.efforts.get(other.model_dump_json())
            if reference is Reference.SYNCHRONOUS and wanted is not None and self.trace.spec.depth > 1:
                self.work.update(asynchronous=seen.work, synchronous=wanted.work)
                found = first_loss_to_synchronous(self.trace, seen, wanted)
                if found is not None:
                    return found.model_copy(update={"reference": reference})
        released = self._effort_of_release()
        if released is None:
            return None
        self.work.update(overlay=seen.work, release=released.work)
        found = first_loss_to_release(seen.work, released.work)
        return found.model_copy(update={"reference": Reference.RELEASE}) if found is not None else None

    def _effort_of_release(self) -> Effort | None:
        """Return the work of the release on the trace; None if it is not needed or crashes."""
        config = self.kind.released(self.config) if self.compared.needs_release else None
        if config is None:
            return None
        # The amount of work does not depend on the schedule.
        trace = self.given.model_copy(update={"schedule": Schedule()})
        key = f"release {trace.model_dump_json()}"
        if key not in self.compared.efforts:
            self.count += 1
            outputs_of(
                trace, self.value_cache, self.kind, config, Options(races=False), partial(self._keep_effort, key)
            )
        return self.compared.efforts.get(key)

    def _keep_effort(self, key: str, run: Run) -> History:
        """Return the history of a finished run, and store its work (effort) for the comparison."""
        history = run.panel.history()
        effort = effort_of(history)
        if effort is not None:
            self.compared.efforts[key] = effort
        return history

    def elsewhere(self, broken: Difference) -> Elsewhere | None:
        """Return whether the synchronous run keeps the violated output rule; None if it is unknown."""
        first = next(iter(self._references()), None)
        if first is None or first[1].spec.depth >= self.trace.spec.depth:
            return None
        reference, other = first
        try:
            run = Run(other, self.value_cache, Options(races=False), self.kind, self.config)
            contracts = run.panel.contracts
            assert contracts is not None, "every judged run checks contracts"
            try:
                run.to_end()
                breach = contracts.first_breach(run.target.outputs())
            finally:
                run.target.close()
        except DeviceError:
            raise
        except Exception as error:
            return Elsewhere(reference=reference, how="failed", error=type(error).__name__)
        if breach is None:
            return Elsewhere(reference=reference, how="keeps")
        is_same = (breach.contract, breach.request) == (broken.variable, broken.request)
        return Elsewhere(
            reference=reference,
            how="breaks" if is_same else "other",
            contract=breach.contract,
            request=breach.request,
        )

    def _schedule_independent(self, outputs: Outputs | FailedRun) -> Outputs | FailedRun:
        """Return the outputs of the requests that must not differ between schedules."""
        if isinstance(outputs, FailedRun):
            return outputs
        left_out = varying(self.trace, self.kind.capabilities.scripts_drafts)
        return {name: output for name, output in outputs.items() if name not in left_out}

    def _references(self) -> list[ReferenceRun]:
        return list(references(self.given, self.trace, self.requests, self.kind.capabilities))

    def _outputs_of(self, trace: Trace) -> Outputs | FailedRun:
        if trace.spec.depth > 1 or not trace.spec.num_speculative_tokens or not shows_plans(self.kind.capabilities):
            return outputs_of(trace, self.value_cache, self.kind, self.config)

        def keep(run: Run) -> None:
            key = trace.model_dump_json()
            self.compared.proposed[key] = proposals_of(self._keep_effort(key, run))

        return outputs_of(trace, self.value_cache, self.kind, self.config, Options(races=False), keep)

    def _difference_without_ties(self, trace: Trace, seen: Outputs, wanted: Outputs | FailedRun) -> Difference | None:
        """Return the first difference of outputs that is not due to a near tie of logits."""
        margin = self.kind.capabilities.logit_margin
        while True:
            found, near_ties = compare(trace, seen, wanted, margin, self.ties)
            if found is None or not margin or not self._is_near_tie(found):
                self.ties.update(near_ties)
                return found
            self.ties.add(found.request)

    def _is_near_tie(self, found: Difference) -> bool:
        """Return whether two runs diverge where the two largest logits are almost equal.

        The request runs once more, alone and with logprobs.
        """
        if found.variable != "tokens" or found.position is None:
            return False
        submit = self.requests.submits[found.request]
        outputs = self._outputs_of(near_tie_trace(self.trace, submit, self.kind.capabilities))
        if isinstance(outputs, FailedRun) or found.request not in outputs:
            return False
        width, position = 2 * NUM_TIE_LOGPROBS, found.position
        # The sampled token's id and logprob come first, then the most likely tokens with theirs.
        row = outputs[found.request].logprobs[width * position : width * (position + 1)]
        return len(row) == width and abs(float(row[3]) - float(row[5])) <= self.kind.capabilities.logit_margin


def _proposals(history: History | None) -> Proposals:
    return proposals_of(history) if history is not None else {}
