"""Compare vLLM's Triton kernels with the definitions of our device ops on equal inputs.

Then compare them with the kernel definitions that replace them on the simulated device: the bytes must be the same.

Run `make vllm-kernels`, or `python -m benchmarks.conformance.vllm_kernels`. With `--engine-path DIR` only the kernel
definitions are compared, with the kernels of a source tree that overlays the installed package. Otherwise the kernels
are those in .venv-vllm, interpreted, and the inputs are the test cases of our ops. `differences.py` lists the known
differences with reasons. Exit code 1 if anything else differs, or a listed difference does not occur; 2 if vLLM or
Triton is not installed. A definition written for another version of the kernel is reported.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.conformance.vllm_kernels.comparison import Count
from benchmarks.conformance.vllm_kernels.differences import KNOWN, Row, unlisted
from workers.targets.target import DeviceError
from workers.targets.vllm.installation import ENVIRONMENT, FIRST_RUNNER, HOME, ROOT, Installation

# Not in vLLM's own environment: vLLM loads Triton wherever it is installed, and its engines then need more memory.
TRITON = "triton"
CHILD = "benchmarks.conformance.vllm_kernels.child"
HELD = "benchmarks.conformance.vllm_kernels.held"
# Number of batches of each size that kernel definitions are compared on.
BATCHES = 3
TWINS = ("definition", "numpy", "triton")


def rows_of(home: Path, twin: str) -> list[Row]:
    """Return equal and different values of vLLM's kernels and our ops, by kernel and case.

    The ops run by one twin, an implementation: definition, NumPy or Triton.

    Raises:
        DeviceError: vLLM or Triton is not installed there; the message says what to do.
        subprocess.CalledProcessError: a kernel could not be run.
    """
    return [
        Row(each["kernel"], each["op"], each["condition"], _count(each)) for each in _printed_objects(home, CHILD, twin)
    ]


class Held(NamedTuple):
    """Launch counts of a vLLM kernel and the NumPy definition that replaces it: equal or not.

    Both leave the same bytes, different bytes, or both raise.

    `is_of_this` says whether the definition was written for the installed kernel's source.
    """

    kernel: str
    num_same: int
    num_other: int
    num_broke_off: int
    is_of_this: bool
    example: str


def held_of(home: Path, batches: int = BATCHES, tree: Path | None = None) -> list[Held]:
    """Compare each kernel with the NumPy definition that replaces it; return launch counts.

    Runs `batches` batches of each size.

    With `tree`, the kernels are loaded from a source tree that overlays the installed package.

    Raises:
        DeviceError: vLLM or Triton is not installed there; the message says what to do.
        subprocess.CalledProcessError: a kernel could not be run.
    """
    found = []
    for each in _printed_objects(home, HELD, str(batches), *(() if tree is None else (str(tree.resolve()),))):
        same, other, broke_off = (each["counts"].get(name, 0) for name in ("same", "other", "broke_off"))
        found.append(Held(each["kernel"], same, other, broke_off, each["is_of_this"], each["example"]))
    return found


def _printed_objects(home: Path, child: str, *arguments: str) -> list[Mapping[str, Any]]:
    """Run a module with vLLM's Python and return the JSON objects that it prints, one per line."""
    python = Installation(home, FIRST_RUNNER).python()
    if not (home / TRITON / "triton").is_dir():
        raise DeviceError(f"Triton is not installed in {home / TRITON}; make vllm-kernels")
    path = os.pathsep.join((str(ROOT), str(home / TRITON)))
    done = subprocess.run(
        [str(python), "-m", child, *arguments],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _count(told: Mapping[str, Any]) -> Count:
    same, other, not_given = told["counts"]
    return Count(same, other, not_given, told["example"])


def table_of(rows: list[Row]) -> str:
    """Return the comparisons of kernels and ops as a table in Markdown."""
    lines = ["| kernel of vLLM | ours | condition | same | other | not given | kind |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        known, count = KNOWN.get((row.kernel, row.condition)), row.counts
        kind = known.kind if known else "**not listed**" if count.num_other else "-"
        numbers = f"{count.num_same} | {count.num_other} | {count.num_not_given}"
        lines.append(f"| `{row.kernel}` | {row.op} | {row.condition or '-'} | {numbers} | {kind} |")
    return "\n".join(lines)


def lines_of(held: list[Held]) -> list[str]:
    """Return lines: a Markdown table of the NumPy definitions, then each wrong definition."""
    lines = ["| kernel of vLLM with a definition | same | other | both raised |", "|---|---|---|---|"]
    lines += [f"| `{each.kernel}` | {each.num_same} | {each.num_other} | {each.num_broke_off} |" for each in held]
    lines += [f"{each.kernel}: its definition leaves other bytes: {each.example}" for each in held if each.num_other]
    return lines + [f"{each.kernel}: its definition is for another source" for each in held if not each.is_of_this]


def main() -> int:
    """Print how vLLM's kernels compare with our ops and definitions; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--twin", choices=TWINS, default="definition", help="implementation of our ops to compare with")
    parser.add_argument("--engine-home", type=Path, default=ROOT / HOME, metavar="DIR", help="an installation of vLLM")
    parser.add_argument("--engine-path", type=Path, metavar="DIR", help="source tree that overlays the installed vLLM")
    asked = parser.parse_args()
    try:
        held = held_of(asked.engine_home, tree=asked.engine_path)
        print("\n".join(lines_of(held)), flush=True)
        if asked.engine_path is not None:
            return 1 if any(each.num_other for each in held) else 0
        rows = rows_of(asked.engine_home, asked.twin)
    except (DeviceError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table_of(rows))
    wrong, same = unlisted(rows), sum(row.counts.num_same for row in rows)
    kernels = len({row.kernel for row in rows})
    print(f"\n{kernels} kernels or groups of kernels: {same} equal values; {len(KNOWN)} differences are listed")
    print("".join(f"{line}\n" for line in wrong), end="")
    return 1 if wrong or any(each.num_other for each in held) else 0


if __name__ == "__main__":
    sys.exit(main())
