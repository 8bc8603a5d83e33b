"""Count the faults that break an output contract: no synchronous run is compared.

`python -m benchmarks.power.contracts --traces 40` runs random traces with each fault, with the engine as a black box,
asynchronously and synchronously, both with the fault; it prints the contracts that each run breaks, and the number of
traces in which the two outputs differ. Exit code 1 if an engine without faults breaks a contract.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, replace

from scenarios.generation.shards import with_faults
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.judge.outputs import FailedRun, Outputs, compare
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import NotDrained
from workers.run.engine_run import Options, Run
from workers.run.process import prepare_process
from workers.run.references import synchronous
from workers.targets.specstorm import Specstorm

STEPS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """Counts for one fault: traces with a broken contract at depth 2 and 1, and other outputs."""

    fault: str
    asynchronous: Counter[str]
    synchronous: Counter[str]
    num_different: int

    def line(self) -> str:
        """Return the counts for one fault as a row of the printed table."""
        return f"{self.fault:<40} {_text(self.asynchronous):<50} {_text(self.synchronous):<50} {self.num_different:>6}"


HEAD = f"{'fault':<40} {'contracts broken at depth 2':<50} {'at depth 1':<50} {'differ':>6}"


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{contract} {count}" for contract, count in counts.most_common()) or "-"


class OutputsAlone(Specstorm):
    """The project's own engine, of which only outputs are visible to the judges."""

    capabilities = replace(Specstorm.capabilities, logs_decisions=False, planes=())


def observed_outputs(trace: Trace, value_cache: ModelValueCache) -> tuple[str | None, Outputs | FailedRun]:
    """Run a trace; return the output contract that is broken, or None, and the outputs."""
    try:
        run = Run(trace, value_cache, Options(races=False, steps_max=STEPS_MAX), OutputsAlone())
        found = run.to_end()
    except Exception as error:
        # A fault may crash the engine, which needs no judge to be noticed.
        return None, FailedRun(type(error).__name__)
    if isinstance(found, NotDrained):
        return None, FailedRun("the run does not end")
    return (found.variable if found is not None else None), run.target.outputs()


def row_of(fault: str | None, num_traces: int, value_cache: ModelValueCache) -> Row:
    """Run random traces with and without async scheduling, and count violated output rules."""
    at_depth_2, at_depth_1, num_different = Counter[str](), Counter[str](), 0
    requires, faults = (FAULTS[fault].requires, (fault,)) if fault is not None else ((), ())
    for seed in range(num_traces):
        trace = with_faults(random_trace(seed), requires, faults).explicit()
        contract, outputs = observed_outputs(trace, value_cache)
        contract_1, outputs_1 = observed_outputs(synchronous(trace), value_cache)
        at_depth_2.update([contract] if contract is not None else [])
        at_depth_1.update([contract_1] if contract_1 is not None else [])
        num_different += compare(trace, outputs, outputs_1).difference is not None
    return Row(fault or "none", at_depth_2, at_depth_1, num_different)


def main() -> int:
    """Print how many traces of each fault break a contract; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=40, metavar="N", help="random traces for each fault")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    arguments = parser.parse_args()
    prepare_process()
    value_cache = ModelValueCache()
    print(HEAD)
    sound = row_of(None, arguments.traces, value_cache)
    print(sound.line(), flush=True)
    found = 0
    chosen: list[str] = arguments.fault or sorted(FAULTS)
    for fault in chosen:
        row = row_of(fault, arguments.traces, value_cache)
        found += bool(row.asynchronous or row.synchronous)
        print(row.line(), flush=True)
    print(f"\n{found} of {len(chosen)} faults break a contract in {arguments.traces} traces")
    return 1 if sound.asynchronous or sound.synchronous else 0


if __name__ == "__main__":
    sys.exit(main())
