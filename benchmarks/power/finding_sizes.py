"""Measure the size of shrunk findings of every fault, and the checks that shrinking takes.

Run with `python -m benchmarks.power.finding_sizes --findings 3`. Exit code 1 if a fault is not found in its plane, or
the engine without faults does not agree on the shrunk trace.
"""

import argparse
import sys
from statistics import median

from cluster.campaigns.regressions import HEAD, SEEDS, problem, shrunk
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.shrink.shrinker import num_exceptions


def main() -> int:
    """Shrink findings and print sizes and medians; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    parser.add_argument("--findings", type=int, default=3, help="findings of each fault to shrink (default 3)")
    options = parser.parse_args()
    value_cache, rows, wrong = ModelValueCache(), [], []
    print(HEAD)
    for name in options.fault or sorted(FAULTS):
        found = shrunk(FAULTS[name], options.findings, value_cache)
        for row in found:
            print(row.line(), flush=True)
        rows += found
        wrong += [text for row in found if (text := problem(FAULTS[name], row, value_cache)) is not None]
        if not found:
            wrong.append(f"{name}: not found in plane {FAULTS[name].plane} in {SEEDS} random traces")
    if rows:
        sizes = [(len(row.small.events), num_exceptions(row.small), row.checks) for row in rows]
        events, exceptions, checks = (median(column) for column in zip(*sizes, strict=True))
        print(f"\n{len(rows)} findings; medians: {events:g} events, {exceptions:g} exceptions, {checks:g} checks")
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
