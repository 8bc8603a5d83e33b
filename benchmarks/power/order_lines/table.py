"""Table of mutants, each run on traces until a race, an input check or harm reveals it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.power.order_lines.runs import Line, Runs, Seen
from scenarios.trace import Trace
from workers.judge.proposals import first_different_draft

# Lazy runs of a mutant that a race has already revealed: they show the harm it does.
HARMLESS_MAX = 6


@dataclass(frozen=True, slots=True)
class Clean:
    """A trace, and the unmodified engine's results under the eager and the lazy policy."""

    name: str
    trace: Trace
    eager: Seen
    lazy: Seen


@dataclass(slots=True)
class Row:
    """One mutant: its first race, first broken check of inputs, and first wrong output.

    `identity` is the broken check, `harm` the wrong output or draft token.
    """

    mutant: str
    num_traces: int = 0
    race: str = ""
    identity: str = ""
    harm: str = ""
    redundant: str = ""

    @property
    def is_caught(self) -> bool:
        """Return whether a race, a broken check of inputs or a wrong output revealed the mutant."""
        return bool(self.race or self.identity or self.harm)

    def line(self) -> str:
        """Return the mutant's results as a Markdown table row."""
        mutant = f"{self.mutant}, redundant: {self.redundant}" if self.redundant else self.mutant
        return f"| {mutant} | {self.num_traces} | {self.race or '-'} | {self.identity or '-'} | {self.harm or '-'} |"


@dataclass(slots=True)
class Table:
    """The rows of all mutants in execution order; `clean` are the traces."""

    runs: Runs
    clean: list[Clean] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def run_clean(self, traces: Iterable[tuple[str, Trace]]) -> list[str]:
        """Run all traces on the unmodified engine; return its unexpected results."""
        wrong: list[str] = []
        for name, trace in traces:
            clean = Clean(name, trace, self.runs.seen(trace, "eager"), self.runs.seen(trace, "lazy"))
            self.clean.append(clean)
            for seen in (clean.eager, clean.lazy):
                wrong += [f"{name}: {what}" for what in (*seen.races, seen.identity) if what]
            if isinstance(clean.eager.outputs, str):
                wrong.append(f"{name}: {clean.eager.outputs}")
        return wrong

    def lines(self) -> dict[Line, str]:
        """Return the order lines that the traces execute, with the calls that they make."""
        found = {line: calls for clean in self.clean for line, calls in clean.eager.orders.items()}
        return dict(sorted(found.items()))

    def try_mutant(self, mutant: str, lines: Sequence[Line] = (), mistake: str = "", redundant: str = "") -> Row:
        """Run a mutant on the traces that reach its lines until it is caught and did harm."""
        row = Row(mutant, redundant=redundant)
        self.rows.append(row)
        self.runs.mutate(lines, mistake)
        reached = [clean for clean in self.clean if not lines or any(line in clean.eager.orders for line in lines)]
        for clean in reached:
            if (row.race and row.harm) or (row.is_caught and row.num_traces >= HARMLESS_MAX):
                break
            row.num_traces += 1
            if not row.race:
                eager = self.runs.seen(clean.trace, "eager")
                row.race = next(iter(eager.races), "")
                row.identity = row.identity or eager.identity
                row.harm = row.harm or _harm(eager, clean.eager, f"{clean.name}, eager", clean.trace)
            # If the unmodified engine fails under the lazy policy, a failure of the mutant is no evidence.
            if not row.harm and clean.lazy.outputs == clean.eager.outputs:
                row.harm = _harm(self.runs.seen(clean.trace, "lazy"), clean.lazy, f"{clean.name}, lazy", clean.trace)
        if row.harm:
            # A new process discards any corrupted memory.
            self.runs.renew()
        print(row.line(), flush=True)
        return row

    def begin(self, wrong: Sequence[str]) -> None:
        """Print unexpected results of the unmodified engine, and the head of the table."""
        print("".join(f"unexpected: {what}\n" for what in wrong), flush=True)
        print("| mutant | traces | race in an eager run | identity of a step | harm |\n|---|---|---|---|---|")

    def end(self, wrong: Sequence[str]) -> int:
        """End the engine's process and print how many mutants are caught; return the exit code."""
        self.runs.kind.stop()
        caught = [row for row in self.rows if row.is_caught]
        num_raced = sum(bool(row.race) for row in caught)
        print(f"\n{len(caught)} of {len(self.rows)} are caught, {num_raced} of them by a race")
        unexpected = [row.mutant for row in self.rows if row.is_caught == bool(row.redundant)]
        print("".join(f"not as listed: {mutant}\n" for mutant in unexpected), end="")
        return 1 if wrong or unexpected else 0


def _harm(seen: Seen, clean: Seen, where: str, trace: Trace) -> str:
    """Return how outputs or draft tokens differ from the unmodified engine's, or ""."""
    if seen.outputs == clean.outputs:
        unlike = first_different_draft(trace, seen.proposals, clean.proposals)
        return f"{where}: other drafts of {unlike.request}" if unlike is not None else ""
    if isinstance(seen.outputs, str):
        return f"{where}: {seen.outputs.partition(' (in the task')[0]}"
    assert not isinstance(clean.outputs, str), "the unmodified engine has finished its run"
    wrong = [name for name, output in clean.outputs.items() if seen.outputs.get(name) != output]
    return f"{where}: other outputs of {', '.join(wrong)}"
