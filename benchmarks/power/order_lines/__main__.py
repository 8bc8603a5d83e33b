"""Leave out each order line (stream wait ...) of an engine: `run` must print the race.

`python -m benchmarks.power.order_lines --engine vllm`. The lines are found while asynchronous scenarios run once under
the eager policy. Each line is then removed from a copy of its module, which overlays the installation as with
`--engine-path`, and the scenarios that reach the line are judged as by `run`, shortest first, until a finding starts
with a race that names the function or the file of the line. Lines that the mutant study lists as redundant are skipped.
Exit code 1 if no such finding exists for another line.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from benchmarks import power
from benchmarks.power.order_lines.printed import Printed, overlay, printed
from benchmarks.power.order_lines.runs import Line, Runs, Studied
from benchmarks.power.reversals.trial import installed, scenarios
from scenarios.trace import Trace
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

Named = tuple[str, Trace]


def _studied() -> Mapping[str, Studied]:
    """Return the engines with order lines (lines that order work), by name."""
    packages = [each.name for each in iter_modules(power.__path__) if each.name.endswith("_mutants")]
    modules = [import_module(f"{power.__name__}.{name}.__main__") for name in packages]
    return {engine: studied for module in modules for engine, studied in module.STUDIED.items()}


_STUDIED = _studied()


def reached(engine: str, traces: Sequence[Named]) -> dict[Line, tuple[str, list[Named]]]:
    """Return the order lines that traces execute, each with its calls and its traces."""
    found: dict[Line, tuple[str, list[Named]]] = {}
    runs = Runs(_STUDIED[engine].kind())
    try:
        for name, trace in sorted(traces, key=lambda each: _num_outputs(each[1])):
            for line, calls in runs.seen(trace, "eager").orders.items():
                found.setdefault(line, (calls, []))[1].append((name, trace))
    finally:
        runs.kind.stop()
    return dict(sorted(found.items()))


def _num_outputs(trace: Trace) -> int:
    """Return the maximum number of output tokens of a trace."""
    return sum(submit.max_tokens for submit in trace.submits())


def running_ahead(engine: str, patterns: Sequence[str]) -> Iterator[Named]:
    """Yield an engine's asynchronous scenarios with a name that matches one of the patterns."""
    kind = target_kind(engine)
    for name, trace in scenarios(engine):
        if trace.spec.depth > 1 and kind.unmet(trace) is None and any(fnmatch(name, each) for each in patterns):
            yield name, trace


def measured(engine: str, line: Line, traces: Sequence[Named]) -> tuple[str, Printed | None]:
    """Judge scenarios without one order line; return the last one and its printed finding.

    Return None for the finding if the line cannot be removed.
    """
    tried, found = "", None
    with tempfile.TemporaryDirectory(prefix="order-lines-") as folder:
        if not overlay(line, installed(engine), Path(folder)):
            return tried, None
        for name, trace in traces:
            tried = name
            found = printed(line, trace, RunConfig(engine=engine), Path(folder))
            if found.is_as_expected:
                break
    return tried, found


def row(line: Line, calls: str, scenario: str, found: Printed | None) -> str:
    """Return an order line, its trace and the printed finding as a row of the table."""
    place = f"{calls} in `{line.function}` ({line.file}:{line.line})"
    if found is None:
        return f"| {place} | not measured: more than a statement | - | - | - |"
    leads = "yes" if found.leads else "no"
    return f"| {place} | {scenario}: {found.kind} | {leads} | {found.named} | {found.race or '-'} |"


def main() -> int:
    """Judge scenarios without each order line, and print a table row for each line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=list(_STUDIED), default=next(iter(_STUDIED)))
    parser.add_argument("--scenario", nargs="+", default=["*"], metavar="PATTERN", help="patterns of scenario names")
    parser.add_argument("--line", nargs="+", default=["*"], metavar="PATTERN", help="lines, as FILE:LINE")
    parser.add_argument("--most", type=int, default=2, metavar="N", help="scenarios to judge for each line")
    options = parser.parse_args()
    lines = reached(options.engine, list(running_ahead(options.engine, options.scenario)))
    redundant = _STUDIED[options.engine].redundant({line: calls for line, (calls, _) in lines.items()})
    print(f"{len(lines)} lines order work, {len(redundant)} of them are redundant\n")
    chosen = {
        line: each
        for line, each in lines.items()
        if line not in redundant and any(fnmatch(f"{line.file}:{line.line}", each) for each in options.line)
    }
    print("| line that is left out | scenario | starts with a race | names its | unordered functions |")
    print("|---|---|---|---|---|", flush=True)
    num_right = 0
    for line, (calls, traces) in chosen.items():
        name, found = measured(options.engine, line, traces[: options.most])
        num_right += found is not None and found.is_as_expected
        print(row(line, calls, name, found), flush=True)
    print(
        f"\n{num_right} of {len(chosen)} lines: the finding starts with a race that names the line's function or file"
    )
    return 0 if num_right == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
