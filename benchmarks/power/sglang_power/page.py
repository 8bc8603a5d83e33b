"""Write the tables of `docs/results/sglang_power.md`: results of reversals, bugs of 2026.

`python -m benchmarks.power.sglang_power.page [--results FILE]`. Results are JSON lines of the benchmark, by default
`results.jsonl` in this folder.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.power.reversals.runs import Results
from benchmarks.power.reversals.trial import Result
from benchmarks.power.sglang_power.reversals import ENGINES, all_reversals
from benchmarks.power.vllm_power.page import measured, of_bugs, written
from workers.targets.sglang.installation import ROOT

MEASURED = Path(__file__).resolve().parent / "results.jsonl"
PAGE = ROOT / "docs" / "results" / "sglang_power.md"


def parts(results: Mapping[str, Result]) -> dict[str, str]:
    """Return the generated sections of the page, by name."""
    reversals = all_reversals()
    return {**measured(reversals, results, ENGINES), "bugs": "\n".join(of_bugs(reversals, MEASURED.parent))}


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the generated sections into the page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=MEASURED, help="results of the benchmark, JSON lines")
    options = parser.parse_args(None if arguments is None else list(arguments))
    sections = parts(Results(options.results).by_key)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), sections), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
