"""Checker: compare the captures and observations of an engine with the oracle's, and name the first difference.

Verifies: every variable of `observation.VARIABLES`, inside its domain.
Does not verify: anything outside a domain (nobody may read it); the decisions themselves (the referee does).
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.due_captures import DueCaptures
from workers.judge.properties import Properties
from workers.judge.referee import Referee
from workers.oracle.expected_captures import (
    SCRATCH,
    Expectation,
    are_close,
    expected_drafted,
    expected_inputs,
    expected_kept,
    expected_logprobs,
    expected_release,
    expected_sampled,
    expected_sampling,
    expected_state,
    place_of,
)
from workers.oracle.prefix_cache import CachedBlocks
from workers.oracle.state_oracle import LogError, Oracle
from workers.oracle.tape import Tapes
from workers.oracle.truth import Release, RowTruth, StepTruth, Truth
from workers.record.log import Entry, Launched, Processed, Scheduled
from workers.record.observation import POINTS, VARIABLES, Observation
from workers.record.verdict import Difference

# So many steps are kept before those that are over are looked for.
_STEPS_KEPT = 8
# What each capture of a step, or of blocks that go back, must show.
EXPECTED: Mapping[str, Callable[[Any, EngineSpec], Expectation]] = {
    "inputs": expected_inputs,
    "sampling": expected_sampling,
    "sampled": expected_sampled,
    "kept": expected_kept,
    "drafted": expected_drafted,
    "state": expected_state,
    "freed": expected_release,
}


class Checker:
    """Follow one run: hand it the log and the captures as they come; it answers with the first difference.

    It is over in the step in which a token was drawn so narrowly that an engine may have drawn another. `points` are
    those at which the engine shows itself: what is due there and not shown is a difference, and so is anything else.
    """

    def __init__(self, trace: Trace, tapes: Tapes, points: Set[str] = POINTS) -> None:
        self.spec = trace.spec
        self.oracle = Oracle(trace, tapes)
        self.referee = Referee(trace, self.oracle)
        # What a step brings is counted where it is shown.
        self._properties = Properties(trace) if "processed" in points else None
        self.step = 0
        self.step_processed = -1
        self._copied: Difference | None = None
        self.num_compared = 0
        self._variables: set[str] = set()
        self._sizes = dict.fromkeys(POINTS, 0)
        self.is_over = False
        self._has_captures = False
        self._has_logprobs = any(submit.params.num_logprobs for submit in trace.submits())
        self._due = DueCaptures(trace, points)

    def follow(self, log: list[Entry | Observation]) -> Difference | None:
        """Fold the entries that are new into the oracle and compare what the host shows."""
        for entry in log:
            if self.is_over:
                return None
            found = self._observation(entry) if isinstance(entry, Observation) else self._entry(entry)
            if found is not None:
                return found
        return None

    def _entry(self, entry: Entry) -> Difference | None:
        """Judge an entry, let the oracle take it, and note what it makes due."""
        due = self._due.before(entry) if self._due.on_host is not None else None
        if due is not None:
            return _difference("observations", self.step, "", "", None, due, type(entry).__name__.lower())
        wrong = self.referee.judge(entry)
        if wrong is None:
            try:
                self.oracle.consume(entry)
            except LogError as error:
                wrong = str(error)
        if wrong is None and self._properties is not None:
            wrong = self._properties.judge(entry)
        if wrong is not None:
            self.step = getattr(entry, "step", self.step)
            kind = type(entry).__name__.lower()
            return _difference("log", self.step, "", "", None, "an allowed decision", f"{kind}: {wrong}")
        if isinstance(entry, Scheduled):
            self.step = entry.step
        elif isinstance(entry, Processed):
            self.step_processed = entry.step
        elif isinstance(entry, Launched) and self.oracle.num_ambiguous:
            self.is_over = True
            del self.oracle.steps[entry.step]
            return None
        self._due.after(entry, self.oracle.steps)
        return None

    def _observation(self, observed: Observation) -> Difference | None:
        due = self._due.observed(observed)
        if due is not None:
            seen = f"observation {observed.point} of step {observed.step}"
            return _difference("observations", self.step, "", "", None, due, seen)
        return self._host(observed)

    def _host(self, observed: Observation) -> Difference | None:
        point, step, _, values = observed
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
                found = _compare_columns(order, truths, columns, observed)
                if found is None and oracle.cache is not None:
                    return _cached(oracle.cache, observed)
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
                return _compare_columns(order, rows, columns, observed)
            case "corrected":
                here = oracle.still_in_batch(step)
                columns = {"corrected_computed": [row.kept for row in here]}
                return _compare_columns(tuple([row.truth.index for row in here]), here, columns, observed)
            case _:
                rows, order = oracle.steps[step].rows, oracle.steps[step].requests
                columns = _processed_columns(rows, oracle.delivered)
                if TRAITS[self.spec.drafter].goes_through_host:
                    columns["host_drafts"] = _host_drafts(rows)
                return _compare_columns(order, rows, columns, observed) or self._results(observed)

    def captures(self, captures: list[Observation]) -> Difference | None:
        """Compare captures of the device, in stream order."""
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
        """Return the difference in a copy whose cause was never captured, if there is one."""
        return self._copied

    def _cause_of_copy(self, capture: Observation, found: Difference | None) -> Difference | None:
        """Return a difference where it was computed, if the same step shows it there and in a copy made before.

        A recurrent state is kept with its block before the states of the step are captured: what is wrong in a copy
        waits for that capture.
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
        """Drop what is expected of steps that are over: processed, corrected, and captured to their end."""
        steps = self.oracle.steps
        if len(steps) <= _STEPS_KEPT:
            return
        before, captured_until = self.step - max(2, self.spec.depth), self._due.captured_until
        if captured_until is not None:
            before = min(before, captured_until)
        for number in [number for number in steps if number < before]:
            del steps[number]

    def _capture(self, capture: Observation) -> Difference | None:
        due = self._due.captured(capture)
        if due is not None:
            if self.is_over and self._due.captured_until is None:
                return None
            seen = f"capture {capture.point} of step {capture.step}, requests {capture.requests}"
            return _difference("captures", capture.step, "", "", None, due, seen)
        point, step, _, _ = capture
        whose = self.oracle.releases.pop(0) if point == "freed" else self.oracle.steps[step]
        return self._compare(EXPECTED[point](whose, self.spec), capture, whose)

    def _compare(self, expected: Expectation, capture: Observation, whose: StepTruth | Release) -> Difference | None:
        """Compare the values of a capture, of a step or of a release."""
        point, step, _, values = capture
        self._count(point, expected)
        # Without padding everything that is captured is expected.
        if values == expected:
            return None
        for variable, wanted in expected.items():
            actual = values.get(variable)
            if actual is None:
                return _difference(variable, step, "", "", None, "values", "none was captured")
            # Behind what is expected everything is scratch.
            if actual != wanted and actual[: len(wanted)] != wanted:
                return self._first_in(variable, wanted, actual, step, whose)
        return None

    def _first_in(
        self, variable: str, wanted: list[Any], actual: list[Any], step: int, whose: StepTruth | Release
    ) -> Difference:
        """Return the first difference of what was captured of a variable from what is expected."""
        if len(actual) < len(wanted):
            return _difference(variable, step, "", "", None, f"{len(wanted)} values", f"{len(actual)} values")
        index = next(at for at, (seen, value) in enumerate(zip(actual, wanted, strict=False)) if seen != value)
        owner, position = place_of(variable, index, whose, self.spec)
        name, commit = (owner.truth.name, owner.commit) if owner is not None else ("padding", "padding")
        return _difference(variable, step, name, commit, position, wanted[index], actual[index])

    @property
    def planes(self) -> tuple[str, ...]:
        """Return the planes in which something was compared so far."""
        return tuple(sorted({VARIABLES[name].plane for name in self._variables if name in VARIABLES}))

    def _count(self, point: str, names: Collection[str]) -> None:
        """Count what is compared at a point, and note its names where it is not as many as the time before."""
        count = len(names)
        self.num_compared += count
        if self._sizes[point] != count:
            self._sizes[point] = count
            self._variables.update(names)

    def _results(self, observed: Observation) -> Difference | None:
        """Compare what else is shown once a step has been processed, and judge what it brought."""
        found = self._logprobs(observed) if self._has_logprobs else None
        if found is None and self.oracle.cache is not None:
            found = _cached(self.oracle.cache, observed)
        found = found or self._books(observed)
        wrong = self._properties.processed(observed) if found is None and self._properties is not None else None
        if wrong is not None:
            return _difference("log", observed.step, "", "", None, "allowed results", f"processed: {wrong}")
        return found

    def _logprobs(self, observed: Observation) -> Difference | None:
        """Compare logprobs, which are close to what is expected, not equal."""
        rows = self.oracle.steps[observed.step].rows
        wanted = expected_logprobs(rows, self.oracle.delivered, self.spec.logprobs_mode)
        if wanted is None:
            return None
        seen = observed.values.get("logprobs") or [()] * len(rows)
        if len(seen) != len(rows):
            return _difference("logprobs", observed.step, "", "", None, f"{len(rows)} rows", f"{len(seen)} rows")
        for row, expected, actual in zip(rows, wanted, seen, strict=True):
            if not are_close(actual, expected):
                return _difference("logprobs", observed.step, row.truth.name, row.commit, None, expected, actual)
        return None

    def _books(self, observed: Observation) -> Difference | None:
        """Compare what is free once a step has been processed."""
        running, cache = self.oracle.running, self.oracle.cache
        if cache is None:
            num_free = self.spec.num_blocks - sum([len(truth.blocks) for truth in running])
        else:
            num_free = cache.num_free
        free = (("free_blocks", num_free), ("free_state_slots", self.spec.max_num_seqs - len(running)))
        for variable, count in free:
            seen = observed.values.get(variable)
            if seen != count:
                return _difference(variable, observed.step, "", "", None, count, seen)
        return None

    def at_end(self, left: Observation, digest: str) -> Difference | None:
        """Compare what is left once nothing is left to do: everything was shown, and must have been given back.

        `digest` is that of all captures, by which schedules are compared: of some captures it is not empty.
        """
        if self._copied is not None:
            return self._copied
        due = self._due.left_over()
        if due is not None:
            which = "observations" if due.startswith("observation") else "captures"
            return _difference(which, self.step, "", "", None, due, "none was shown")
        if self._has_captures and not digest:
            return _difference("captures", self.step, "", "", None, "a digest of all captures", "an empty digest")
        self.num_compared += 1
        self._variables.add("leaks")
        wrong = self.referee.at_end() if not self.is_over else None
        if wrong is not None:
            return _difference("log", self.step, "", "", None, "an allowed end", wrong)
        blocks = self.spec.num_blocks - left.values["free_blocks"]
        slots = self.spec.max_num_seqs - left.values["free_state_slots"]
        held = [f"{what} of request {self.oracle.requests[request].name}" for what, request in left.values["held"]]
        if blocks or slots or held:
            kept = ", ".join([f"{blocks} blocks, {slots} state slots", *held])
            return _difference("leaks", self.step, "", "", None, "0 blocks, 0 state slots", kept)
        return None


def _cached(cache: CachedBlocks, observed: Observation) -> Difference | None:
    """Compare who holds blocks, what can be found in them, and in which order they would lose it."""
    columns = {
        "block_references": cache.num_holders,
        "cached_hashes": cache.hash_of,
        "idle_blocks": cache.idle,
    }
    for variable, wanted in columns.items():
        seen = observed.values.get(variable, ())
        if seen != tuple(wanted):
            at = next((at for at, (a, b) in enumerate(zip(seen, wanted, strict=False)) if a != b), len(wanted))
            expected, actual = wanted[at : at + 1], list(seen[at : at + 1])
            return _difference(variable, observed.step, "", "", None, f"{expected} at {at}", f"{actual} at {at}")
    return None


def _processed_columns(rows: Sequence[RowTruth], delivered: list[tuple[int, ...]]) -> dict[str, list[Any]]:
    """Return what each row of a processed step brings its request; counts only where the request goes on."""
    truths = [row.truth for row in rows]
    ends = [truth.finish_reason for truth in truths]
    computed: list[Any] = [truth.sched_computed for truth in truths]
    placeholders: list[Any] = [truth.sched_placeholders for truth in truths]
    for index, end in enumerate(ends if any(ends) else ()):
        if end is not None:
            computed[index] = placeholders[index] = SCRATCH
    return {"tokens": delivered, "finish_reason": ends, "computed": computed, "placeholders": placeholders}


def _host_drafts(rows: Sequence[RowTruth]) -> list[Any]:
    """Return the drafts that the host has for each row that goes on with a token."""
    return [
        row.proposed if row.valid and row.truth.finish_reason is None and row.row.epoch == row.truth.epoch else SCRATCH
        for row in rows
    ]


def _compare_columns(
    order: tuple[int, ...],
    whose: Sequence[Truth | RowTruth],
    columns: dict[str, list[Any]],
    observed: Observation,
) -> Difference | None:
    """Compare values of the host, one a request or one a row, which come in the oracle's order."""
    _, step, requests, values = observed
    if order != requests:
        return _difference("log", step, "", "", None, f"requests {order}", f"requests {requests}")
    if {**values, **columns} == values:
        return None
    for variable, wanted in columns.items():
        actual = values.get(variable)
        if actual == wanted:
            continue
        if actual is None or len(actual) != len(wanted):
            return _difference(variable, step, "", "", None, f"{len(wanted)} values", actual)
        for owner, expected, seen in zip(whose, wanted, actual, strict=True):
            if expected != seen:
                name = owner.truth.name if isinstance(owner, RowTruth) else owner.name
                return _difference(variable, step, name, owner.commit, None, expected, seen)
    return None


def _difference(
    variable: str, step: int, request: str, commit: str, position: int | None, expected: object, actual: object
) -> Difference:
    plane = VARIABLES[variable].plane if variable in VARIABLES else "books"
    return Difference(
        plane=plane,
        variable=variable,
        request=request,
        commit=commit,
        step=step,
        position=position,
        expected=_show(expected),
        actual=_show(actual),
    )


def _show(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 32:
        return f"{value:016x}"
    return str(value)
