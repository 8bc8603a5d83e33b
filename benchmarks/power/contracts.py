"""Say which faults the contracts find in outputs alone, where a comparison with a synchronous run is blind.

`python -m benchmarks.power.contracts --traces 40` runs random traces with each fault, in an engine seen as a black box,
asynchronous and synchronous, both with the fault; it prints the contracts that each of them breaks, and in how many
traces the outputs of both differ. Exit code 1 if an engine without faults breaks one.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, replace

from scenarios.generation.shards import fitted
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.judge.outputs import BrokenOff, Outputs, compare
from workers.oracle.tape import Tapes
from workers.record.verdict import NotDrained
from workers.run.engine_run import Options, Run
from workers.run.process import prepare_process
from workers.run.references import synchronous
from workers.targets.specstorm import Specstorm

STEPS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """What is seen of one fault from outside: the traces in which each contract is broken, and outputs differ."""

    fault: str
    asynchronous: Counter[str]
    synchronous: Counter[str]
    num_different: int

    def line(self) -> str:
        """Return the row as text."""
        return f"{self.fault:<40} {_text(self.asynchronous):<50} {_text(self.synchronous):<50} {self.num_different:>6}"


HEAD = f"{'fault':<40} {'contracts broken at depth 2':<50} {'at depth 1':<50} {'differ':>6}"


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{contract} {count}" for contract, count in counts.most_common()) or "-"


class OutputsAlone(Specstorm):
    """Our engine as one of which nobody sees more than its outputs."""

    capabilities = replace(Specstorm.capabilities, logs_decisions=False, planes=())


def seen_of(trace: Trace, tapes: Tapes) -> tuple[str | None, Outputs | BrokenOff]:
    """Run a trace with nothing looked at but its outputs; return the contract they break, and the outputs."""
    try:
        run = Run(trace, tapes, Options(races=False, steps_max=STEPS_MAX), OutputsAlone())
        found = run.to_end()
    except Exception as error:
        # A fault may crash its engine, which is seen without any judge.
        return None, BrokenOff(type(error).__name__)
    if isinstance(found, NotDrained):
        return None, BrokenOff("it does not end")
    return (found.variable if found is not None else None), run.target.outputs()


def row_of(fault: str | None, num_traces: int, tapes: Tapes) -> Row:
    """Run random traces with a fault, or without any, asynchronously and synchronously."""
    ahead, behind, num_different = Counter[str](), Counter[str](), 0
    requires, faults = (FAULTS[fault].requires, (fault,)) if fault is not None else ((), ())
    for seed in range(num_traces):
        trace = fitted(random_trace(seed), requires, faults).explicit()
        contract, outputs = seen_of(trace, tapes)
        contract_behind, outputs_behind = seen_of(synchronous(trace), tapes)
        ahead.update([contract] if contract is not None else [])
        behind.update([contract_behind] if contract_behind is not None else [])
        num_different += compare(trace, outputs, outputs_behind).difference is not None
    return Row(fault or "none", ahead, behind, num_different)


def main() -> int:
    """Print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=40, metavar="N", help="random traces of each fault")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help="only this fault")
    arguments = parser.parse_args()
    prepare_process()
    tapes = Tapes()
    print(HEAD)
    sound = row_of(None, arguments.traces, tapes)
    print(sound.line(), flush=True)
    found = 0
    chosen: list[str] = arguments.fault or sorted(FAULTS)
    for fault in chosen:
        row = row_of(fault, arguments.traces, tapes)
        found += bool(row.asynchronous or row.synchronous)
        print(row.line(), flush=True)
    print(f"\n{found} of {len(chosen)} faults break a contract in {arguments.traces} traces")
    return 1 if sound.asynchronous or sound.synchronous else 0


if __name__ == "__main__":
    sys.exit(main())
