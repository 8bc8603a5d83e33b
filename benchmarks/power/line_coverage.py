"""List the lines of engine and NumPy ops that no random trace executes, with reasons.

Run with `python -m benchmarks.power.line_coverage`. Shards of the two generators of `specstorm hunt` alternate, on the
engine without faults. A line that is not executed is looked up in the table of `docs/results/coverage.md`. Exit code 1
if it is not explained there, or if an explained line is executed.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from benchmarks.power.random_shards import over_shards, shards_each
from scenarios.generation.shards import TRACES_PER_SHARD, Shard
from workers.oracle.model_values import ModelValueCache
from workers.run.check import check

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "coverage.md"
FOLDERS = ("workers/engine", "workers/kernels")
# A definition is the reference for the NumPy twin in its folder; the Triton twins run on other devices.
OTHER_TWINS = ("definition.py", "triton.py")
TWIN = "numpy.py"


class Line(NamedTuple):
    """A line of code, identified by file and text because line numbers change."""

    file: str
    text: str


def files() -> list[Path]:
    """Return the source files of the engine and of its NumPy ops."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    others = (path for path in found if path.name not in (*OTHER_TWINS, "__init__.py"))
    return sorted((*others, *definitions_run()))


def definitions_run() -> list[Path]:
    """Return the op definitions that run on device `sim` because no NumPy twin exists."""
    found = (ROOT / "workers" / "kernels").glob("*/definition.py")
    return sorted(path for path in found if not (path.parent / TWIN).exists())


def executable(path: Path) -> set[int]:
    """Return the numbers of a module's lines that run when one of its functions is called."""
    found: set[int] = set()
    for code in _functions(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
        # A definition's first line runs where the function is defined.
        found |= {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
    return found


def _functions(code: CodeType, is_body: bool = True) -> Iterator[CodeType]:
    """Yield the code of all functions inside `code`.

    `is_body` says that `code` is the body of a module or class.
    """
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_class = is_body and "__qualname__" in constant.co_names and not constant.co_flags & 2
            if not is_class:
                yield constant
            yield from _functions(constant, is_class)


class Watch:
    """Context manager that records which lines of the watched files are executed."""

    def __init__(self, watched: list[Path]) -> None:
        self.seen: dict[str, set[int]] = {str(path): set() for path in watched}
        self._once: object = None

    def __enter__(self) -> "Watch":
        """Start recording."""
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            self._once = monitoring.DISABLE
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "line_coverage")
            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._line)
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
            # Otherwise a line that an earlier watch has disabled would stay disabled.
            monitoring.restart_events()
        else:
            sys.settrace(self._call)
        return self

    def __exit__(self, *of: object) -> None:
        """Stop recording."""
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
        else:
            sys.settrace(None)

    def _line(self, code: CodeType, number: int) -> object:
        if code.co_filename in self.seen:
            self.seen[code.co_filename].add(number)
        return self._once

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        seen = self.seen.get(frame.f_code.co_filename)
        if seen is None:
            return None
        seen.add(frame.f_lineno)
        return self._call


def lines_run(shards: int, first: int) -> dict[str, set[int]]:
    """Return the lines that the traces of `shards` shards execute, starting at shard `first`."""
    value_cache = ModelValueCache()
    with Watch(files()) as watch:
        for number in range(first, first + shards):
            shard = Shard(profile="mixed", seed=0, number=number)
            for trace in shard.generate():
                check(trace.explicit(), value_cache)
    return watch.seen


def unreached(seen: dict[str, set[int]]) -> dict[Line, int]:
    """Return the lines that were not executed, each with its line number."""
    found: dict[Line, int] = {}
    for path in files():
        text = path.read_text(encoding="utf-8").splitlines()
        for number in sorted(executable(path) - seen[str(path)]):
            found.setdefault(Line(str(path.relative_to(ROOT)), text[number - 1].strip()), number)
    return found


def explained() -> dict[Line, str]:
    """Return the lines that the page explains, each with its reason."""
    found = {}
    for row in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in row.strip().strip("|").split(" | ")]
        if row.startswith("| `") and len(cells) == 3:
            found[Line(cells[0].strip("`"), cells[1].strip("`"))] = cells[2]
    return found


def main() -> int:
    """Run traces and print the lines that none of them executes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=2000, help="traces to run (default 2000)")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the traces (default 1)")
    options = parser.parse_args()
    shards = shards_each(options.traces, options.processes)
    seen: dict[str, set[int]] = {str(path): set() for path in files()}
    for part in over_shards(lines_run, shards, options.processes):
        for file, numbers in part.items():
            seen[file] |= numbers
    known, missed = explained(), unreached(seen)
    total = sum(len(executable(path)) for path in files())
    traces = shards * options.processes * TRACES_PER_SHARD
    print(f"{traces} traces: {total} lines of {len(files())} files, {len(missed)} not executed")
    for line, number in missed.items():
        print(f"{'' if line in known else 'UNEXPLAINED '}{line.file}:{number}: {line.text}  ({known.get(line, '?')})")
    stale = [line for line in known if line not in missed]
    for line in stale:
        print(f"EXPLAINED, but executed or gone: {line.file}: {line.text}")
    return 1 if stale or any(line not in known for line in missed) else 0


if __name__ == "__main__":
    sys.exit(main())
