"""Measure how many draft tokens vLLM accepts, on the release and with the fix of a finding.

`python -m findings.acceptance [NAME ...]` runs `acceptance.yaml` of each finding twice, without judges: with the fixes
of races, or those that the file names, and with the finding's own fix as well. It prints one line for each run.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from cluster.cli.inputs import check_fixes
from scenarios.codec import load, run_on
from scenarios.trace import Trace
from workers.edits.fix import FINDINGS, RACES
from workers.oracle.model_values import ModelValueCache
from workers.record.engine_records import Counted, EngineRecord
from workers.run.engine_run import UNJUDGED, Options, Run
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig, Watch

FILE = "acceptance.yaml"


class Acceptance(NamedTuple):
    """Counts: accepted draft tokens, proposed draft tokens, batch rows with draft tokens."""

    accepted: int
    drafts: int
    rows: int


class _Measured(Run):
    """A run without judges, which returns the observations that the engine reports."""

    def _watch(self, options: Options) -> Watch:
        return Watch(None, options.blame, options.without, None, options.races, steps=True)

    def observations(self) -> list[EngineRecord]:
        """Run the trace to its end and return the engine's observations of all steps."""
        shown: list[EngineRecord] = []
        try:
            while not self.feed.drained():
                self.feed.step()
                shown += self.target.take_engine_records()
            self.target.drain()
            return shown + self.target.take_engine_records()
        finally:
            self.target.close()


def acceptance_of(shown: Sequence[EngineRecord]) -> Acceptance:
    """Return the sums of the engine's draft-token metrics over the observations."""
    counts = [each.values.counted for each in shown if isinstance(each, Counted)]
    rows, drafts, accepted = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    return Acceptance(accepted, drafts, rows)


def measured(trace: Trace, config: RunConfig, fixes: str) -> Acceptance:
    """Return the acceptance counts of a trace on an engine with these fixes."""
    kind, config = target_kind(config.engine), config.model_copy(update={"fixes": fixes})
    config = config.model_copy(update={"engine_version": kind.version(config)})
    try:
        return acceptance_of(_Measured(trace, ModelValueCache(), UNJUDGED, kind, config).observations())
    finally:
        kind.restart(config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the acceptance of each finding with and without its fix; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = sorted(file.parent.name for file in FINDINGS.glob(f"*/{FILE}"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"findings that have {FILE}; default: all")
    for name in parser.parse_args(arguments).names or every:
        if name not in every:
            print(f"acceptance: {name} has no {FILE}; allowed: {', '.join(every)}", file=sys.stderr)
            return 2
        file = FINDINGS / name / FILE
        trace, config = load(file).explicit(), RunConfig.of(run_on(file))
        others = check_fixes(config.fixes or RACES, target_kind(config.engine).package)
        for with_what, fixes in (("release", others), ("own fix", f"{others},{name}")):
            seen = measured(trace, config, fixes)
            print(f"{name} ({with_what}): {seen.accepted} of {seen.drafts} draft tokens accepted", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
