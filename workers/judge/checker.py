"""Compare all device copies and host observations of an engine with the oracle's values.

A *capture* is a copy of device variables that the engine takes in stream order; an *observation* is the same of host
variables.

Verifies:
- every variable of `observation.VARIABLES`, inside its domain: counts, model inputs, KV cache, recurrent states, draft
  tokens, logits, sampled tokens;
- that every capture and observation that the log requires is shown, in order (`required_captures`);
- that no block, state slot or request is held at the end.

Does not verify:
- values outside a domain: no code may read them;
- the scheduler's decisions (`referee` and `properties` do).
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.host_columns import cached_difference, compare_columns, difference, host_drafts, processed_columns
from workers.judge.judge import Case, End, Judge
from workers.judge.properties import Properties
from workers.judge.referee import Referee
from workers.judge.required_captures import RequiredCaptures
from workers.oracle.expected_captures import (
    SCRATCH,
    Expectation,
    are_close,
    expected_drafted,
    expected_inputs,
    expected_kept,
    expected_logprobs,
    expected_poisoned,
    expected_release,
    expected_sampled,
    expected_sampling,
    expected_state,
    first_difference,
    row_and_position,
)
from workers.oracle.model_values import ModelValueCache
from workers.oracle.state_oracle import LogError, Oracle
from workers.oracle.truth import Release, StepTruth
from workers.record.evidence import Difference, fact
from workers.record.log import Entry, Launched, Processed, Scheduled
from workers.record.observation import POINTS, VARIABLES, Observation

# Number of steps to keep before finished steps are searched for and dropped.
_STEPS_KEPT = 8
# By capture point, the function that returns the expected values of a step, or of released blocks.
EXPECTED: Mapping[str, Callable[[Any, EngineSpec], Expectation]] = {
    "poisoned": expected_poisoned,
    "inputs": expected_inputs,
    "sampling": expected_sampling,
    "sampled": expected_sampled,
    "kept": expected_kept,
    "drafted": expected_drafted,
    "state": expected_state,
    "freed": expected_release,
}


class Checker(Judge):
    """Judge that compares every captured device value and host observation with the oracle.

    It stops (`is_over`) in the step in which a token was sampled so close to a tie that an engine may sample another.
    `points` are the observation points that the engine supports: a missing or an extra observation at one of them is a
    difference.
    """

    sees = ("log", "captures")

    def __init__(self, trace: Trace, value_cache: ModelValueCache, points: Set[str] = POINTS) -> None:
        self.spec = trace.spec
        self.oracle = Oracle(trace, value_cache)
        self.referee = Referee(trace, self.oracle)
        # `Properties` counts the results of steps, so it needs the observations at `processed`.
        self._properties = Properties(trace) if "processed" in points else None
        self.step = 0
        self.step_processed = -1
        self._copied: Difference | None = None
        self._on_host: Difference | None = None
        self.num_compared = 0
        self._variables: set[str] = set()
        self._sizes = dict.fromkeys(POINTS, 0)
        self.is_over = False
        self._has_captures = False
        self._names = {0: 0}
        self._has_logprobs = any(submit.params.num_logprobs for submit in trace.submits())
        self._required = RequiredCaptures(trace, points)

    @classmethod
    def of(cls, case: Case) -> "Checker | None":
        """Return the judge; None for an engine that does not log its scheduler decisions."""
        return cls(case.trace, case.value_cache) if case.capabilities.logs_decisions else None

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        """Check new log entries; return the first difference in a decision or host observation."""
        for entry in log:
            if self.is_over:
                return None
            found = self._observation(entry) if isinstance(entry, Observation) else self._entry(entry)
            if found is not None:
                self._on_host = found
                return found
        return None

    def _entry(self, entry: Entry) -> Difference | None:
        """Judge a log entry, pass it to the oracle, and note the captures that must follow it."""
        due = self._required.before(entry) if self._required.on_host is not None else None
        if due is not None:
            return difference("observations", self.step, due, fact("entry", entry=_kind(entry)))
        wrong = self.referee.judge(entry)
        if wrong is None:
            try:
                self.oracle.consume(entry)
            except LogError as error:
                wrong = error.violation
        if wrong is None and self._properties is not None:
            wrong = self._properties.judge(entry)
        if wrong is not None:
            self.step = getattr(entry, "step", self.step)
            wrong = wrong.model_copy(update={"entry": _kind(entry)})
            return difference("log", self.step, fact("allowed_decision"), wrong)
        if isinstance(entry, Scheduled):
            self.step = entry.step
        elif isinstance(entry, Processed):
            self.step_processed = entry.step
        elif isinstance(entry, Launched) and self.oracle.num_ambiguous:
            self.is_over = True
            del self.oracle.steps[entry.step]
            return None
        self._required.after(entry, self.oracle.steps)
        return None

    def _observation(self, observed: Observation) -> Difference | None:
        due = self._required.observed(observed)
        if due is not None:
            seen = fact("observation", point=observed.point, step=observed.step)
            return difference("observations", self.step, due, seen)
        return self._host(observed)

    def _host(self, observed: Observation) -> Difference | None:
        point, step, _, values, _ = observed
        oracle = self.oracle
        self._count(point, values)
        columns: dict[str, list[Any]]
        match point:
            case "scheduled":
                truths = oracle.running
                columns = {
                    "scheduled_computed": [truth.sched_computed for truth in truths],
                    "scheduled_placeholders": [truth.sched_placeholders for truth in truths],
                    "scheduled_known": [truth.committed for truth in truths],
                }
                order = tuple([truth.index for truth in truths])
                found = compare_columns(order, truths, columns, observed)
                if found is None and oracle.cache is not None:
                    return cached_difference(oracle.cache, self._names, observed)
                return found
            case "launched":
                rows, order = oracle.steps[step].rows, oracle.steps[step].requests
                columns = {
                    "mirror_computed": [row.sched_computed for row in rows],
                    "mirror_no_spec": [row.no_spec for row in rows],
                    "discard": [row.discard for row in rows],
                }
                if True in columns["discard"]:
                    columns["backup"] = [row.backup if row.discard else SCRATCH for row in rows]
                return compare_columns(order, rows, columns, observed)
            case "corrected":
                here = oracle.still_in_batch(step)
                columns = {"corrected_computed": [row.kept for row in here]}
                return compare_columns(tuple([row.truth.index for row in here]), here, columns, observed)
            case _:
                rows, order = oracle.steps[step].rows, oracle.steps[step].requests
                columns = processed_columns(rows, oracle.delivered)
                if TRAITS[self.spec.drafter].goes_through_host:
                    columns["host_drafts"] = host_drafts(rows)
                return compare_columns(order, rows, columns, observed) or self._results(observed)

    def see_captures(self, captures: Sequence[Observation]) -> Difference | None:
        """Compare new captures; return the first difference on the device or, if earlier, the host."""
        on_device, on_host = self._first_of(captures), self._on_host
        if on_device is None or on_host is None:
            return on_host or on_device
        # Host values of a processed step follow from the values that the device computed in that step.
        until = max(on_host.step + _follows_device(on_host), 1 + self.step_processed)
        return on_device if on_device.step < until else on_host

    def _first_of(self, captures: Sequence[Observation]) -> Difference | None:
        self._has_captures |= bool(captures)
        for capture in captures:
            found = self._capture(capture)
            if found is not None or self._copied is not None:
                found = self._cause_of_copy(capture, found)
            if found is not None:
                return found
        self._forget()
        return None

    def unexplained(self) -> Difference | None:
        """Return the difference of a recurrent state's copy, if its source was not captured."""
        return self._copied

    def _cause_of_copy(self, capture: Observation, found: Difference | None) -> Difference | None:
        """Attribute a wrong copy of a recurrent state to its source, which is captured later.

        A recurrent state is copied to its block (point `kept`) before the states of the step are captured (point
        `state`): a difference in the copy is held back until that capture.
        """
        copied = self._copied
        if copied is None:
            if found is not None and capture.point == "kept":
                self._copied = found
                return None
            return found
        if capture.point == "state" and found is not None and found.request == copied.request:
            return found if found.variable in ("state", "window") else copied
        return copied if capture.point == "state" or found is not None else None

    def _forget(self) -> None:
        """Drop the oracle's values of steps that are processed and completely compared."""
        steps = self.oracle.steps
        if len(steps) <= _STEPS_KEPT:
            return
        before, captured_until = self.step - max(2, self.spec.depth), self._required.captured_until
        if captured_until is not None:
            before = min(before, captured_until)
        for number in [number for number in steps if number < before]:
            del steps[number]

    def _capture(self, capture: Observation) -> Difference | None:
        due = self._required.captured(capture)
        if due is not None:
            if self.is_over and self._required.captured_until is None:
                return None
            seen = fact("capture", point=capture.point, step=capture.step, requests=capture.requests)
            return difference("captures", capture.step, due, seen)
        point, step, _, _, _ = capture
        truth = self.oracle.releases.pop(0) if point == "freed" else self.oracle.steps[step]
        return self._compare(EXPECTED[point](truth, self.spec), capture, truth)

    def _compare(self, expected: Expectation, capture: Observation, truth: StepTruth | Release) -> Difference | None:
        """Return the first difference between a capture and the expected values, or None."""
        point, step, _, values, _ = capture
        self._count(point, expected)
        # Without padding all captured values are expected.
        if values == expected:
            return None
        for variable, wanted in expected.items():
            actual = values.get(variable)
            if actual == wanted:
                continue
            if actual is None:
                return difference(variable, step, fact("values"), fact("not_captured"))
            if len(actual) < len(wanted):
                due, seen = (fact("num_values", count=len(each)) for each in (wanted, actual))
                return difference(variable, step, due, seen)
            # Values after the expected ones are scratch.
            index = first_difference(wanted, actual)
            if index is not None:
                owner, position = row_and_position(variable, index, truth, self.spec)
                # A block that was lost to a reset belongs to no request.
                nobody = "" if variable == "poisoned" else "padding"
                name, commit = (owner.truth.name, owner.commit_key) if owner is not None else (nobody, nobody)
                return difference(variable, step, wanted[index], actual[index], (name, commit, position))
        return None

    @property
    def planes(self) -> tuple[str, ...]:
        return tuple(sorted({VARIABLES[name].plane for name in self._variables if name in VARIABLES}))

    def _count(self, point: str, names: Collection[str]) -> None:
        """Count the variables compared at a capture point, and remember their names."""
        count = len(names)
        self.num_compared += count
        if self._sizes[point] != count:
            self._sizes[point] = count
            self._variables.update(names)

    def _results(self, observed: Observation) -> Difference | None:
        """Compare a processed step's logprobs, prefix cache, block pools and token counts."""
        found = self._logprobs(observed) if self._has_logprobs else None
        if found is None and self.oracle.cache is not None:
            found = cached_difference(self.oracle.cache, self._names, observed)
        found = found or self._free_counts(observed)
        wrong = self._properties.processed(observed) if found is None and self._properties is not None else None
        if wrong is not None:
            wrong = wrong.model_copy(update={"entry": "processed"})
            return difference("log", observed.step, fact("allowed_results"), wrong)
        return found

    def _logprobs(self, observed: Observation) -> Difference | None:
        """Compare logprobs of sampled tokens within a tolerance (rounding may differ)."""
        rows = self.oracle.steps[observed.step].rows
        wanted = expected_logprobs(rows, self.oracle.delivered, self.spec.logprobs_mode)
        if wanted is None:
            return None
        seen = observed.values.get("logprobs") or [()] * len(rows)
        if len(seen) != len(rows):
            due, there = (fact("num_rows", count=len(each)) for each in (rows, seen))
            return difference("logprobs", observed.step, due, there)
        for row, expected, actual in zip(rows, wanted, seen, strict=True):
            if not are_close(actual, expected):
                return difference("logprobs", observed.step, expected, actual, (row.truth.name, row.commit_key, None))
        return None

    def _free_counts(self, observed: Observation) -> Difference | None:
        """Compare the numbers of free KV-cache blocks and state slots after a step was processed."""
        running, cache = self.oracle.running, self.oracle.cache
        if cache is None:
            num_free = self.spec.num_blocks - sum([len(truth.blocks) for truth in running])
        else:
            num_free = cache.num_free
        free = (("free_blocks", num_free), ("free_state_slots", self.spec.max_num_seqs - len(running)))
        for variable, count in free:
            seen = observed.values.get(variable)
            if seen != count:
                return difference(variable, observed.step, count, seen)
        return None

    @property
    def probes(self) -> dict[str, int]:
        """Counts of the situations ("probes", such as a rejected draft) that the oracle has seen."""
        oracle = self.oracle
        drawn = {"random_decision": oracle.num_decisions, "ambiguous_decision": oracle.num_ambiguous}
        return {**drawn, **oracle.happened}

    def at_end(self, end: End) -> Difference | None:
        """Check that no required capture is missing and that the host holds no block or request."""
        left = end.left
        assert left is not None, "the engine shows what its host holds"
        if self._copied is not None:
            return self._copied
        due = self._required.left_over()
        if due is not None:
            which, missing = due
            return difference(which, self.step, missing, fact("not_shown"))
        if self._has_captures and not end.digest:
            return difference("captures", self.step, fact("digest"), fact("no_digest"))
        self.num_compared += 1
        self._variables.add("leaks")
        wrong = self.referee.at_end() if not self.is_over else None
        if wrong is not None:
            return difference("log", self.step, fact("allowed_end"), wrong)
        blocks = self.spec.num_blocks - left.values["free_blocks"]
        slots = self.spec.max_num_seqs - left.values["free_state_slots"]
        held = [(what, self.oracle.requests[request].name) for what, request in left.values["held"]]
        if blocks or slots or held:
            kept = fact("held", blocks=blocks, slots=slots)
            for what, name in held:
                kept = fact("held_too", before=kept, what=what, request=name)
            return difference("leaks", self.step, fact("held", blocks=0, slots=0), kept)
        return None


def _follows_device(host: Difference) -> bool:
    """Return whether a host value is computed from device results of its own step."""
    variable = VARIABLES.get(host.variable)
    return variable is not None and variable.point in ("corrected", "processed")


def _kind(entry: Entry) -> str:
    return type(entry).__name__.lower()
