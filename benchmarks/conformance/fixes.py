"""Fixes of known bugs, tried: each finding shows on the release, and does not show with its own fix.

`python -m benchmarks.conformance.fixes [NAME ...]` replays the trace of each finding on the engine that its file names,
three times: on the release, with its own fix, and with all fixes. If a trace also meets other bugs, `run_on` of its
file names their fixes, which are applied each time. `--sample N --seed S` takes some of them. Exit code 1 if a finding
does not show on the release, or shows with its fix; 2 for a name that has no fix.
"""

import argparse
import random
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scenarios.codec import load, run_on
from scenarios.trace import Trace
from workers.edits.fix import ALL, FILE, FINDINGS, TRACE
from workers.oracle.tape import Tapes
from workers.record.verdict import Agreed, Crashed, Diverged, Stuck, Vacuous, Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.registry import kind_of
from workers.targets.target import RunConfig


class Tried(NamedTuple):
    """Verdicts on the trace of one finding: on the release, with its own fix, and with all fixes."""

    name: str
    engine: str
    released: str
    fixed: str
    all_fixed: str

    @property
    def proves(self) -> bool:
        """Whether the fix proves the diagnosis: the finding shows without it and not with it."""
        return self.released not in ("agrees", "vacuous") and self.fixed == self.all_fixed == "agrees"


def names_of(asked: Sequence[str], sample: int | None, seed: int) -> list[str]:
    """Return the findings to try, all that have a fix and a trace if none is named.

    Raises:
        KeyError: a finding that is named has no fix, or no trace.
    """
    fixes = {file.parent.name for file in FINDINGS.glob(f"*/{FILE}")}
    for name in asked:
        if name not in fixes or not trace_file(name).exists():
            raise KeyError(name)
    return sampled(asked or {name for name in fixes if trace_file(name).exists()}, sample, seed)


def sampled(names: Collection[str], sample: int | None, seed: int) -> list[str]:
    """Return the names in order, or `sample` of them that a seed selects."""
    found = sorted(names)
    return sorted(random.Random(seed).sample(found, min(sample, len(found)))) if sample is not None else found


def trace_file(name: str) -> Path:
    """Return the file of the smallest trace of a finding."""
    return FINDINGS / name / TRACE


def tried(name: str) -> Tried:
    """Return verdicts on the release, with its own fix and with all; the file may name fixes of other bugs."""
    trace, config = load(trace_file(name)).explicit(), RunConfig.of(run_on(trace_file(name)))
    others = config.fixes
    own = ",".join(filter(None, (others, name)))
    config = config.model_copy(update={"engine_version": "", "engine_digest": ""})
    shown = [_shown(trace, config.model_copy(update={"fixes": fixes})) for fixes in (others, own, ALL)]
    return Tried(name, config.engine, *shown)


def _shown(trace: Trace, config: RunConfig) -> str:
    """Run a trace under a configuration, stop the engine's process, and return the verdict as text."""
    kind = kind_of(config.engine)
    try:
        return _text(check(trace, Tapes(), Options(confirm="never"), config=config))
    finally:
        kind.restart(config)


def _text(verdict: Verdict) -> str:
    match verdict:
        case Agreed():
            return "agrees"
        case Diverged(difference=found):
            return f"diverged in {found.plane}: {found.variable}"
        case Crashed(error=error):
            return f"crashed: {error[:60]}"
        case Stuck():
            return "stuck"
        case Vacuous():
            return "vacuous"
        case _:
            return type(verdict).__name__.lower()


def lines(names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each finding, and whether its fix proves the diagnosis."""
    for name in names:
        found = tried(name)
        mark = "proved" if found.proves else "NOT PROVED"
        shown = f"release: {found.released}; own fix: {found.fixed}; all fixes: {found.all_fixed}"
        yield f"{mark:<10} {name} ({found.engine}): {shown}", found.proves


def main(arguments: Sequence[str] | None = None) -> int:
    """Try fixes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="findings to try; default: all that have a fix")
    parser.add_argument("--sample", type=int, metavar="N", help="try N of them")
    parser.add_argument("--seed", type=int, default=0, help="which of them --sample takes (default: 0)")
    options = parser.parse_args(arguments)
    try:
        names = names_of(options.names, options.sample, options.seed)
    except KeyError as error:
        print(
            f"fixes: {error} has no fix, or no trace; allowed are folders of {FINDINGS} with {FILE} and {TRACE}",
            file=sys.stderr,
        )
        return 2
    proved = []
    for line, is_proved in lines(names):
        print(line, flush=True)
        proved.append(is_proved)
    print(f"{sum(proved)} of {len(proved)} fixes proved")
    return 0 if all(proved) else 1


if __name__ == "__main__":
    sys.exit(main())
