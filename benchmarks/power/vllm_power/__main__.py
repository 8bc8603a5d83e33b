"""Take merged fixes of vLLM back, one at a time, and say how soon each reversal is found, where, and which are never.

`python -m benchmarks.power.vllm_power --workers 16 --results power.jsonl` tries every reversal on the first runner that
has its code, ten minutes of processor time each: the traces that `specstorm hunt` draws with the seed, in their order,
until one shows what the release does not show on the same trace. With `--results` what is done is kept, and the same
command goes on from there. `docs/results/vllm_power.md` says how to read it.

Exit code 1 if a reversal is not found that is not listed as missed, or one cannot begin; 2 for what cannot be asked.
"""

import sys
from functools import partial

from benchmarks.power.reversals import command
from benchmarks.power.reversals.command import Suite
from benchmarks.power.vllm_power.reversals import ENGINES, all_reversals

SUITE = Suite(__doc__ or "", ENGINES, all_reversals)
main = partial(command.main, SUITE)

if __name__ == "__main__":
    sys.exit(main())
