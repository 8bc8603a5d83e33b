"""Compare what an engine shows with what the oracle expects, and name the first difference.

Verifies: every variable of `observation.VARIABLES`, inside its domain.
Does not verify: anything outside a domain (nobody may read it); the decisions themselves (the referee does).
"""

from typing import Any

from scenarios.trace import Trace
from workers.expected import Layout, expected_inputs, expected_release, expected_sampled, expected_state
from workers.log import Entry, Scheduled
from workers.observation import VARIABLES, Observation
from workers.oracle import LogError, Oracle, Truth
from workers.referee import Referee
from workers.tape import Tapes
from workers.verdict import Difference

_STEPS_KEPT = 2


class Checker:
    """Follow one run: hand it the log and the captures as they come; it answers with the first difference."""

    def __init__(self, trace: Trace, tapes: Tapes) -> None:
        self.spec = trace.spec
        self.oracle = Oracle(trace, tapes)
        self.referee = Referee(trace, self.oracle)
        self.step = 0
        self.num_compared = 0
        self._captured: set[int] = set()

    def follow(self, log: list[Entry | Observation]) -> Difference | None:
        """Fold the entries that are new into the oracle and compare what the host shows."""
        for entry in log:
            if isinstance(entry, Observation):
                found = self._host(entry)
                if found is not None:
                    return found
                continue
            wrong = self.referee.judge(entry)
            if wrong is None:
                try:
                    self.oracle.consume(entry)
                except LogError as error:
                    wrong = str(error)
            if wrong is not None:
                self.step = getattr(entry, "step", self.step)
                kind = type(entry).__name__.lower()
                return _difference("log", self.step, "", "", None, "an allowed decision", f"{kind}: {wrong}")
            if isinstance(entry, Scheduled):
                self.step = entry.step
        return None

    def captures(self, captures: list[Observation]) -> Difference | None:
        """Compare captures of the device, in stream order; those of steps the oracle was not told of are left out."""
        for capture in captures:
            found = self._capture(capture)
            if found is not None:
                return found
        self._forget()
        return None

    def _forget(self) -> None:
        """Drop what is expected of steps that are over: processed, corrected, and captured to their end."""
        steps = self.oracle.steps
        for number in [number for number in steps if number < self.step - _STEPS_KEPT]:
            if number in self._captured or not steps[number].rows:
                del steps[number]
                self._captured.discard(number)

    def _capture(self, capture: Observation) -> Difference | None:
        spec, oracle = self.spec, self.oracle
        if capture.point == "freed":
            return self._layout(expected_release(oracle.releases.pop(0)), capture) if oracle.releases else None
        step = oracle.steps.get(capture.step)
        if step is None:
            return None
        match capture.point:
            case "inputs":
                return self._layout(expected_inputs(step, spec), capture)
            case "sampled":
                return self._layout(expected_sampled(step, spec), capture)
            case _:
                self._captured.add(capture.step)
                return self._layout(expected_state(step, spec), capture)

    def _layout(self, layout: Layout, capture: Observation) -> Difference | None:
        self.num_compared += len(layout)
        for variable, segments in layout.items():
            actual = capture.values[variable]
            for offset, values, row, first in segments:
                seen = actual[offset : offset + len(values)]
                wanted = values if type(values) is list else list(values)
                if seen != wanted:
                    index = next(i for i, (a, b) in enumerate(zip(seen, wanted, strict=True)) if a != b)
                    position = None if first is None else first + index
                    owner = row[index] if isinstance(row, list) else row
                    name, commit = (owner.truth.name, owner.commit) if owner is not None else ("padding", "padding")
                    return _difference(variable, capture.step, name, commit, position, wanted[index], seen[index])
        return None

    def _host(self, observed: Observation) -> Difference | None:
        match observed.point:
            case "scheduled":
                wanted = self._expected_schedule()
            case "launched":
                wanted = self._expected_launch(observed.step)
            case "corrected":
                wanted = self._expected_correction(observed.step)
            case _:
                return self._processed(observed)
        self.num_compared += len(observed.values)
        return _compare_rows(wanted, observed)

    def _expected_schedule(self) -> list[tuple[Truth, str, dict[str, Any]]]:
        return [
            (
                truth,
                f"{truth.name}/{truth.epoch}",
                {
                    "scheduled_computed": truth.sched_computed,
                    "scheduled_placeholders": truth.sched_placeholders,
                    "scheduled_known": truth.committed,
                },
            )
            for truth in self.oracle.running
        ]

    def _expected_launch(self, step: int) -> list[tuple[Truth, str, dict[str, Any]]]:
        wanted = []
        for row in self.oracle.steps[step].rows:
            values: dict[str, Any] = {
                "mirror_computed": row.sched_computed,
                "mirror_no_spec": row.no_spec,
                "discard": row.discard,
            }
            if row.discard:
                values["backup"] = row.backup
            wanted.append((row.truth, row.commit, values))
        return wanted

    def _expected_correction(self, step: int) -> list[tuple[Truth, str, dict[str, Any]]]:
        return [
            (row.truth, row.commit, {"corrected_computed": row.kept})
            for row in self.oracle.steps[step].rows
            if self.oracle.still_in_batch(row)
        ]

    def _processed(self, observed: Observation) -> Difference | None:
        oracle, values = self.oracle, observed.values
        self.num_compared += len(values)
        step = oracle.steps.get(observed.step)
        wanted = []
        for row, tokens in zip(step.rows if step else (), oracle.delivered, strict=True):
            truth = row.truth
            expected: dict[str, Any] = {"tokens": tokens, "finish_reason": truth.finish_reason}
            if truth.finish_reason is None:
                expected |= {"computed": truth.sched_computed, "placeholders": truth.sched_placeholders}
            wanted.append((truth, row.commit, expected))
        found = _compare_rows(wanted, observed)
        if found is not None:
            return found
        held = sum(len(truth.blocks) for truth in oracle.running)
        books = {
            "free_blocks": self.spec.num_blocks - held,
            "free_state_slots": self.spec.max_num_seqs - len(oracle.running),
        }
        for variable, count in books.items():
            if values[variable] != count:
                return _difference(variable, observed.step, "", "", None, count, values[variable])
        return None

    def at_end(self, num_free_blocks: int, num_free_state_slots: int) -> Difference | None:
        """Compare what is left once nothing is left to do: everything must have been given back.

        Raises:
            AssertionError: a step was never captured to its end.
        """
        missed = [number for number, step in self.oracle.steps.items() if step.rows and number not in self._captured]
        assert not missed, f"steps {missed} were never captured"
        assert not self.oracle.releases, "caches that were given back were never captured"
        self.num_compared += 1
        blocks, slots = self.spec.num_blocks - num_free_blocks, self.spec.max_num_seqs - num_free_state_slots
        if blocks or slots:
            kept = f"{blocks} blocks, {slots} state slots"
            return _difference("leaks", self.step, "", "", None, "0 blocks, 0 state slots", kept)
        return None


def _compare_rows(wanted: list[tuple[Truth, str, dict[str, Any]]], observed: Observation) -> Difference | None:
    """Compare per-request host values, which come in the oracle's order of requests."""
    order = tuple(truth.index for truth, _, _ in wanted)
    if order != observed.requests:
        return _difference("log", observed.step, "", "", None, f"requests {order}", f"requests {observed.requests}")
    for index, (truth, commit, values) in enumerate(wanted):
        for variable, expected in values.items():
            actual = observed.values[variable][index]
            if actual != expected:
                return _difference(variable, observed.step, truth.name, commit, None, expected, actual)
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
        expected=_show(expected, plane),
        actual=_show(actual, plane),
    )


def _show(value: object, plane: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 32:
        return f"{value:016x}"
    return str(value)
