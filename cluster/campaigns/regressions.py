"""Write the smallest trace found for every fault into `scenarios/regressions/`.

`python -m cluster.campaigns.regressions` writes the traces that are missing, and with `--fault ID` the traces of some
faults again. Exit code 1 if a fault is not found in its plane, or the clean engine does not agree on its trace.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cluster.dispatch.origin import ROOT
from cluster.storage.artefact import schema_line
from scenarios import codec
from scenarios.codec import comment
from scenarios.events import Schedule
from scenarios.generation.base import random_trace
from scenarios.generation.shards import with_faults
from scenarios.trace import Trace, problems
from workers.faults.fault import Fault
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.shard import first_matching_candidate
from workers.shrink.shrinker import Shrinking, num_exceptions, shrink

FOLDER = ROOT / "scenarios" / "regressions"
SEEDS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """One shrunk trace: its size before and after, candidates tried, seconds."""

    fault: str
    seed: int
    before: Trace
    small: Trace
    checks: int
    seconds: float

    def line(self) -> str:
        """Return the shrunk finding as a row of the printed table."""
        return (
            f"{self.fault:<40} {self.seed:>5} {len(self.before.events):>7} {len(self.small.events):>6} "
            f"{num_exceptions(self.small):>10} {self.checks:>6} {self.seconds:>8.2f}"
        )


HEAD = f"{'fault':<40} {'seed':>5} {'events':>7} {'shrunk':>6} {'exceptions':>10} {'checks':>6} {'seconds':>8}"


def findings(fault: Fault, value_cache: ModelValueCache) -> Iterator[tuple[int, Trace, Diverged]]:
    """Yield random traces that reveal a fault in the expected plane, under eager or lazy."""
    for seed in range(SEEDS):
        for policy in ("eager", "lazy"):
            trace = with_faults(random_trace(seed), fault.requires, (fault.id,)).explicit()
            trace = trace.model_copy(update={"schedule": Schedule.model_validate({"policy": policy})})
            verdict = check(trace, value_cache)
            if isinstance(verdict, Diverged) and verdict.difference.plane == fault.plane:
                yield seed, trace, verdict
                break


def shrunk(fault: Fault, count: int, value_cache: ModelValueCache) -> list[Row]:
    """Shrink the first random traces that reveal a fault; return a row for each."""
    rows = []
    for seed, trace, verdict in findings(fault, value_cache):
        begin = time.monotonic()
        state = shrink(
            Shrinking.of(trace, verdict), lambda traces, target: first_matching_candidate(traces, target, value_cache)
        )
        rows.append(Row(fault.id, seed, trace, state.trace, state.spent, time.monotonic() - begin))
        if len(rows) == count:
            break
    return rows


def problem(fault: Fault, row: Row, value_cache: ModelValueCache) -> str | None:
    """Return a message if a regression does not reveal its fault as expected, else None."""
    verdict = check(row.small, value_cache)
    if not isinstance(verdict, Diverged) or verdict.difference.plane != fault.plane:
        return f"{fault.id}: expected plane {fault.plane}, the trace comes to {verdict.kind}"
    without = row.small.model_copy(update={"faults": ()})
    if problems(without):
        # The fault lifts a refusal: without it no engine runs this trace.
        return None
    clean = check(without, value_cache)
    return None if isinstance(clean, Agreed) else f"{fault.id}: the clean engine does not agree: {clean.kind}"


def write(fault: Fault, row: Row) -> None:
    """Write the regression file of a fault."""
    FOLDER.mkdir(exist_ok=True)
    head = schema_line(FOLDER) + comment([f"{fault.source}: {fault.symptom}."])
    (FOLDER / f"{fault.id}.yaml").write_text(head + codec.dumps(row.small), encoding="utf-8", newline="\n")


def main() -> int:
    """Shrink a trace for each fault, and write the regression files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    arguments = parser.parse_args()
    chosen: list[str] = arguments.fault or [name for name in sorted(FAULTS) if not (FOLDER / f"{name}.yaml").exists()]
    value_cache, wrong = ModelValueCache(), []
    print(HEAD)
    for name in chosen:
        fault = FAULTS[name]
        found = shrunk(fault, 1, value_cache)
        if not found:
            wrong.append(f"{name}: not found in plane {fault.plane} in {SEEDS} random traces")
            continue
        print(found[0].line(), flush=True)
        failed = problem(fault, found[0], value_cache)
        if failed is None:
            write(fault, found[0])
        else:
            wrong.append(failed)
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
