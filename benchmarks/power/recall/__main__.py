"""Check the census of fixes between two releases, and write its page.

`python -m benchmarks.power.recall` checks the rows, prints how many fixes hunts of the older release had shown, and
writes the tables of `docs/results/recall.md`. `--check` writes nothing. `python -m benchmarks.power.recall.trials`
undoes fixes of the newer release and hunts for them.

Exit code 1 if `--check` finds that the page differs; 2 if the census is invalid.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.power.recall.census import CensusError
from benchmarks.power.recall.page import PAGE, parts
from benchmarks.power.vllm_power.page import written


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the census, print its figures and write its page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    options = parser.parse_args(arguments)
    try:
        sections = parts()
    except CensusError as error:
        print(error, file=sys.stderr)
        return 2
    print(sections["figures"], sections["missing"], sep="\n\n")
    before = PAGE.read_text(encoding="utf-8")
    after = written(before, sections)
    if options.check:
        return 0 if after == before else 1
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
