"""Undo merged fixes of SGLang one at a time, and print how soon traces find each reversal.

`python -m benchmarks.power.sglang_power --results power.jsonl` tries every reversal for ten minutes of CPU time: it
runs the traces of `specstorm hunt --engine sglang` with the same seed, in order, until one gives a finding that the
release does not give on the same trace. With `--results` results are stored, and the same command resumes from them.

Exit code 1 if a reversal that is not listed as missed is not found, or one cannot start; 2 for invalid options.
"""

import sys
from functools import partial

from benchmarks.power.reversals import command
from benchmarks.power.reversals.command import Suite
from benchmarks.power.sglang_power.reversals import ENGINES, all_reversals

SUITE = Suite(__doc__ or "", ENGINES, all_reversals)
main = partial(command.main, SUITE)

if __name__ == "__main__":
    sys.exit(main())
