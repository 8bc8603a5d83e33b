"""Undo fixes of a newer release one at a time, and print whether hunts find each.

`python -m benchmarks.power.recall.trials --engine-path out/vllm-release --workers 8 --results recall.jsonl` undoes each
fix of vLLM in the census that a trace can express and that no finding has. It hunts for ten minutes of CPU time, as
`python -m benchmarks.power.vllm_power` does. Without `--engine-path` the installed release is edited.

Exit code 1 if a fix that is undone is not found, or one cannot start; 2 for invalid options.
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.power.reversals import command, table
from benchmarks.power.reversals.command import Suite
from benchmarks.power.reversals.table import Reversal
from benchmarks.power.vllm_power.reversals import ENGINES

FOLDER = Path(__file__).resolve().parent / "reversals"


def all_reversals(folder: Path = FOLDER) -> tuple[Reversal, ...]:
    """Return the fixes to undo, in the order of the census; the number of each is its row in `vllm.csv`.

    Raises:
        TableError: a file is not a valid table, or an id occurs twice.
    """
    return table.reversals_in(folder, Reversal)


SUITE = Suite(__doc__ or "", ENGINES, all_reversals)
main = partial(command.main, SUITE)

if __name__ == "__main__":
    sys.exit(main())
