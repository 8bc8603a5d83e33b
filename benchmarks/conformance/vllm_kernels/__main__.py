"""Run vLLM's own Triton kernels beside the definitions of our device ops, on the same inputs, and say what differs.

`make vllm-kernels`, or `python -m benchmarks.conformance.vllm_kernels`. The kernels are those of the package in
.venv-vllm, interpreted; the inputs are the cases that the twins of our ops are tested on. What may differ is listed in
`differences.py`, with reasons. Exit code 1 if anything else differs, or something on the list does not; 2 if there is
no installation to run.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.conformance.vllm_kernels.comparison import Count
from benchmarks.conformance.vllm_kernels.differences import KNOWN, Row, unlisted
from workers.targets.target import DeviceError
from workers.targets.vllm.installation import ENVIRONMENT, FIRST_RUNNER, HOME, ROOT, Installation

# Beside what vLLM is installed with: where vLLM finds a Triton it loads it, and its engines grow.
TRITON = "triton"
CHILD = "benchmarks.conformance.vllm_kernels.child"
TWINS = ("definition", "numpy", "triton")


def rows_of(home: Path, twin: str) -> list[Row]:
    """Return what is counted of all kernels beside one twin of our ops.

    Raises:
        DeviceError: vLLM or Triton is not installed there; the message says what to do.
        subprocess.CalledProcessError: a kernel could not be run.
    """
    python = Installation(home, FIRST_RUNNER).python()
    if not (home / TRITON / "triton").is_dir():
        raise DeviceError(f"Triton is not installed in {home / TRITON}; make vllm-kernels")
    path = os.pathsep.join((str(ROOT), str(home / TRITON)))
    done = subprocess.run(
        [str(python), "-m", CHILD, twin],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [Row(each["kernel"], each["op"], each["condition"], _count(each)) for each in told]


def _count(told: Mapping[str, Any]) -> Count:
    same, other, not_given = told["counts"]
    return Count(same, other, not_given, told["example"])


def table_of(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| kernel of vLLM | ours | condition | same | other | not given | kind |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        known, count = KNOWN.get((row.kernel, row.condition)), row.counts
        kind = known.kind if known else "**not listed**" if count.num_other else "-"
        numbers = f"{count.num_same} | {count.num_other} | {count.num_not_given}"
        lines.append(f"| `{row.kernel}` | {row.op} | {row.condition or '-'} | {numbers} | {kind} |")
    return "\n".join(lines)


def main() -> int:
    """Compare, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--twin", choices=TWINS, default="definition", help="which twin of our ops to compare with")
    parser.add_argument("--engine-home", type=Path, default=ROOT / HOME, metavar="DIR", help="an installation of vLLM")
    asked = parser.parse_args()
    try:
        rows = rows_of(asked.engine_home, asked.twin)
    except (DeviceError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table_of(rows))
    wrong, same = unlisted(rows), sum(row.counts.num_same for row in rows)
    kernels = len({row.kernel for row in rows})
    print(f"\n{kernels} kernels or groups of them: {same} values are the same; {len(KNOWN)} differences are listed")
    print("".join(f"{line}\n" for line in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
