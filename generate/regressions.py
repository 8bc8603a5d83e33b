"""Keep the smallest trace of every fault in `scenarios/regressions/`, and measure how small findings become.

`python -m generate.regressions` writes the traces that are missing, with `--fault ID` those of some faults anew.
With `--measure N` it writes nothing, shrinks N findings of every fault, and prints sizes and medians.
Exit code 1 if a fault is not found in its plane, or the clean engine does not agree on its trace.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cluster.storage.artefact import schema_line
from scenarios import codec
from scenarios.codec import comment
from scenarios.events import Schedule
from scenarios.random_trace import random_trace
from scenarios.shards import fitted
from scenarios.trace import Trace, problems
from workers.faults.fault import Fault
from workers.faults.registry import FAULTS
from workers.oracle.tape import Tapes
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.shard import first_alike
from workers.shrink.shrinker import Shrinking, num_exceptions, shrink

FOLDER = Path(__file__).resolve().parent.parent / "scenarios" / "regressions"
SEEDS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one finding: its trace before and after, candidates tried, seconds."""

    fault: str
    seed: int
    before: Trace
    small: Trace
    checks: int
    seconds: float

    def line(self) -> str:
        """Return the row as text."""
        return (
            f"{self.fault:<40} {self.seed:>5} {len(self.before.events):>7} {len(self.small.events):>6} "
            f"{num_exceptions(self.small):>10} {self.checks:>6} {self.seconds:>8.2f}"
        )


HEAD = f"{'fault':<40} {'seed':>5} {'events':>7} {'shrunk':>6} {'exceptions':>10} {'checks':>6} {'seconds':>8}"


def findings(fault: Fault, tapes: Tapes) -> Iterator[tuple[int, Trace, Diverged]]:
    """Yield random traces on which a fault is found in its plane: eagerly, or else with a late device."""
    for seed in range(SEEDS):
        for policy in ("eager", "lazy"):
            trace = fitted(random_trace(seed), fault.requires, (fault.id,)).explicit()
            trace = trace.model_copy(update={"schedule": Schedule.model_validate({"policy": policy})})
            verdict = check(trace, tapes)
            if isinstance(verdict, Diverged) and verdict.difference.plane == fault.plane:
                yield seed, trace, verdict
                break


def shrunk(fault: Fault, count: int, tapes: Tapes) -> list[Row]:
    """Shrink the first findings of a fault."""
    rows = []
    for seed, trace, verdict in findings(fault, tapes):
        begin = time.monotonic()
        state = shrink(Shrinking.of(trace, verdict), lambda traces, target: first_alike(traces, target, tapes))
        rows.append(Row(fault.id, seed, trace, state.trace, state.spent, time.monotonic() - begin))
        if len(rows) == count:
            break
    return rows


def problem(fault: Fault, row: Row, tapes: Tapes) -> str | None:
    """Return what is wrong with a regression of a fault, or None."""
    verdict = check(row.small, tapes)
    if not isinstance(verdict, Diverged) or verdict.difference.plane != fault.plane:
        return f"{fault.id}: expected plane {fault.plane}, the trace comes to {verdict.kind}"
    without = row.small.model_copy(update={"faults": ()})
    if problems(without):
        # The fault lifts a refusal: without it no engine runs this trace at all.
        return None
    clean = check(without, tapes)
    return None if isinstance(clean, Agreed) else f"{fault.id}: the clean engine does not agree: {clean.kind}"


def write(fault: Fault, row: Row) -> None:
    """Write the regression of a fault."""
    FOLDER.mkdir(exist_ok=True)
    head = schema_line(FOLDER) + comment([f"{fault.source}: {fault.symptom}."])
    (FOLDER / f"{fault.id}.yaml").write_text(head + codec.dumps(row.small), encoding="utf-8", newline="\n")


def main() -> int:
    """Shrink, print, perhaps write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="shrink N findings of each, write nothing")
    arguments = parser.parse_args()
    chosen: list[str] = arguments.fault or sorted(FAULTS)
    if not arguments.fault and not arguments.measure:
        chosen = [fault for fault in chosen if not (FOLDER / f"{fault}.yaml").exists()]
    tapes, rows, wrong = Tapes(), [], []
    print(HEAD)
    for name in chosen:
        fault = FAULTS[name]
        found = shrunk(fault, arguments.measure or 1, tapes)
        for row in found:
            print(row.line(), flush=True)
        rows += found
        failed = [text for row in found if (text := problem(fault, row, tapes)) is not None]
        wrong += failed if found else [f"{name}: not found in plane {fault.plane} in {SEEDS} random traces"]
        if found and not failed and not arguments.measure:
            write(fault, found[0])
    if rows:
        sizes = [(len(row.small.events), num_exceptions(row.small), row.checks) for row in rows]
        events, exceptions, checks = (median(column) for column in zip(*sizes, strict=True))
        print(f"\n{len(rows)} findings; medians: {events:g} events, {exceptions:g} exceptions, {checks:g} checks")
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
