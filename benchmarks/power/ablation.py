"""Measure which bugs are lost if one situation of generated traces is left out.

`python -m benchmarks.power.ablation --workers 16 --results ablation.jsonl` leaves each situation of our own engine out
in turn, and generates traces with each fault until it is found; `--engine NAME` uses the reversals of vLLM instead. The
traces of a trial are the same each time except for the situation. With `--results` outcomes are stored, and the same
command continues from there.

Prints for each situation how many trials found their bug, the bugs that no trial found without it, and the bugs that
took more than twice as many traces. A situation that loses nothing may be deleted.
Does not measure: bugs that several situations find independently.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.power.reversals import trial as reversals
from benchmarks.power.vllm_power.reversals import ENGINES, all_reversals
from scenarios.generation.catalogue import situations_of
from scenarios.generation.shards import Shard, fitted
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.run.process import prepare_process
from workers.run.trials import run_with_fault
from workers.targets.registry import target_kind
from workers.targets.target import SPECSTORM

NOTHING = "(nothing)"
SLOWER = 2


class Trial(NamedTuple):
    """A search for one bug with one situation of the traces left out."""

    engine: str
    situation: str
    bug: str
    number: int
    traces: int

    @property
    def without(self) -> tuple[str, ...]:
        """Return the names of the situations that are left out."""
        return () if self.situation == NOTHING else (self.situation,)


class Outcome(Value):
    """Number of traces until a trial found its bug; None if it did not find it."""

    trial: Trial
    at: int | None


def outcome_of(trial: Trial) -> Outcome:
    """Run a trial in this process and return its outcome."""
    return Outcome(trial=trial, at=_fault_found(trial) if trial.engine == SPECSTORM else _reversal_found(trial))


def _fault_found(trial: Trial) -> int | None:
    value_cache, requires = ModelValueCache(), FAULTS[trial.bug].requires
    for index, trace in enumerate(islice(_traces(trial), trial.traces), 1):
        if run_with_fault(trial.bug, fitted(trace, requires, (trial.bug,)).explicit(), value_cache).plane:
            return index
    return None


def _traces(trial: Trial) -> Iterator[Trace]:
    capabilities = target_kind(trial.engine).capabilities
    for number in count():
        shard = Shard(profile="mixed", seed=trial.number, number=number, without=trial.without)
        yield from shard.generate(capabilities)


def _reversal_found(trial: Trial) -> int | None:
    (reversal,) = (each for each in all_reversals() if each.id == trial.bug)
    task = reversals.Task(trial.bug, reversal.edits, trial.engine, seed=trial.number, without=trial.without)
    result = reversals.tried(task, trial.traces)
    return result.traces if result.found is not None else None


def run(trials: Sequence[Trial], workers: int, file: Path | None) -> Iterator[Outcome]:
    """Yield the outcome of each trial as it ends, after those stored in `file`."""
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
    kept = {each.trial: each for each in map(Outcome.model_validate_json, lines)}
    yield from (kept[trial] for trial in trials if trial in kept)
    with ProcessPoolExecutor(workers, get_context("spawn"), prepare_process) as pool:
        for future in as_completed([pool.submit(outcome_of, trial) for trial in trials if trial not in kept]):
            outcome = future.result()
            if file is not None:
                with file.open("a", encoding="utf-8") as stream:
                    stream.write(outcome.model_dump_json() + "\n")
            yield outcome


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a table row per situation: trials that found their bug, lost and slower bugs."""
    found: dict[str, dict[str, list[int | None]]] = defaultdict(lambda: defaultdict(list))
    for each in outcomes:
        found[each.trial.situation][each.trial.bug].append(each.at)
    width = max(map(len, found))
    for situation, bugs in sorted(found.items(), key=lambda item: (item[0] != NOTHING, item[0])):
        ats = [at for each in bugs.values() for at in each]
        line = f"{situation:<{width}}  {sum(at is not None for at in ats)} of {len(ats)} trials"
        lost, slower = _worse(found[NOTHING], bugs)
        parts = [f"{what}: {', '.join(names)}" for what, names in (("lost", lost), ("slower", slower)) if names]
        yield "; ".join([line, *parts])


def _worse(
    before: Mapping[str, Sequence[int | None]], after: Mapping[str, Sequence[int | None]]
) -> tuple[list[str], list[str]]:
    """Return the lost bugs, and the bugs that need over SLOWER times as many traces."""
    lost, slower = [], []
    for bug, ats in after.items():
        first, now = ([at for at in each if at is not None] for each in (before[bug], ats))
        if first and not now:
            lost.append(bug)
        elif first and (mean(now) > SLOWER * mean(first) or len(now) < len(first)):
            slower.append(f"{bug} ({mean(first):.0f} to {mean(now):.0f} traces, {len(now)} of {len(first)} trials)")
    return lost, slower


def trials_of(asked: argparse.Namespace) -> list[Trial]:
    """Return the requested trials; ValueError names an unknown situation or bug."""
    known = situations_of(target_kind(asked.engine).capabilities)
    reverted = [each.id for each in all_reversals() if asked.engine in (ENGINES[runner] for runner in each.runners)]
    bugs = sorted(FAULTS) if asked.engine == SPECSTORM else reverted
    situations = asked.situation or list(known)
    wrong = [name for name in (*situations, *(asked.bug or ())) if name not in known and name not in bugs]
    if wrong:
        raise ValueError(f"{wrong[0]} is neither a situation nor a bug of engine {asked.engine}")
    return [
        Trial(asked.engine, situation, bug, number, asked.traces)
        for number in range(asked.trials)
        for situation in (NOTHING, *situations)
        for bug in asked.bug or bugs
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials and print which bugs need which situation of the traces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default=SPECSTORM, help=f"(default: {SPECSTORM}, with its faults as bugs)")
    parser.add_argument("--situation", action="append", metavar="NAME", help="leave out only this situation")
    parser.add_argument("--bug", action="append", metavar="ID", help="try only this fault or reversal")
    parser.add_argument("--trials", type=int, default=4, metavar="N", help="trials of a bug (default: 4)")
    parser.add_argument("--traces", type=int, default=200, metavar="N", help="traces of a trial at most (default: 200)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one for each CPU"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="store outcomes here, and continue from them")
    asked = parser.parse_args(arguments)
    try:
        trials = trials_of(asked)
    except ValueError as error:
        print(f"ablation: {error}", file=sys.stderr)
        return 2
    print(*table(list(run(trials, asked.workers, asked.results))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
