"""Command that undoes merged fixes one at a time, and prints how soon each is found."""

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.power.reversals.runs import Results, UsageError, run
from benchmarks.power.reversals.table import Reversal, TableError
from benchmarks.power.reversals.trial import Result, Source, Task, installed
from workers.edits.edit import EditError, apply_replacements


class Suite(NamedTuple):
    """Reversals of an engine: text for the command's help, engines by runner, and the table."""

    about: str
    engines: Mapping[str, str]
    reversals: Callable[[], Sequence[Reversal]]


def sampled(reversals: Sequence[Reversal], count: int | None, seed: int) -> list[Reversal]:
    """Return `count` reversals in the order of a seed; all in table order if `count` is None."""
    if count is None:
        return list(reversals)
    return sorted(reversals, key=lambda each: sha256(f"{seed} {each.id}".encode()).digest())[:count]


def tasks_of(suite: Suite, reversals: Sequence[Reversal], options: argparse.Namespace) -> list[Task]:
    """Return the trials to run: each reversal on the requested engines with that code."""
    tasks = []
    for each in reversals:
        engines = [suite.engines[runner] for runner in each.runners]
        wanted = engines[:1] if options.engine == "first" else engines
        if options.engine in suite.engines.values():
            wanted = [engine for engine in engines if engine == options.engine]
        for engine in wanted:
            source: Source = "scenarios" if options.scenarios else "drawn"
            sources = str(options.engine_path or "")
            tasks.append(Task(each.id, each.edits, engine, source, options.seed, options.minutes, sources))
    return tasks


def line_of(result: Result) -> str:
    """Return one line on a trial: whether and how soon the reversal was found."""
    effort = f"{result.traces:5} traces {result.seconds:6.0f} s"
    if result.refused:
        return f"REFUSED {effort}  {result.id} on {result.engine}: {result.refused}"
    if result.found is None:
        return f"missed  {effort}  {result.id} on {result.engine}"
    found = result.found
    near = f"{found.nearness}: {found.sites[0]}" if found.sites else found.nearness
    return f"found   {effort}  {result.id} on {result.engine}: {found.bug} [{near}]"


def summary(results: Sequence[Result]) -> list[str]:
    """Return lines on the results: reversals found, traces and seconds needed, named locations."""
    found = [each for each in results if each.found is not None]
    lines = [f"{len(found)} of {len(results)} are found"]
    if found:
        traces, seconds = median(each.traces for each in found), median(each.seconds for each in found)
        near = [each.found.nearness for each in found if each.found is not None]
        there = near.count("function") + near.count("file")
        lines += [
            f"median {traces:g} traces and {seconds:.0f} s of CPU time, including the engine's start",
            f"the first report names the edited file in {there} ({near.count('function')} its function), another in"
            f" {near.count('elsewhere')}, none in {near.count('nowhere')}",
        ]
    return lines


def unexpected(results: Sequence[Result], reversals: Sequence[Reversal]) -> list[str]:
    """Return a line per result that contradicts the table's expectation."""
    missed = {each.id: each.expected_missed for each in reversals}
    return [
        f"not as listed: {each.id} on {each.engine} {'is refused' if each.refused else 'is not found'}"
        for each in results
        if each.found is None and (each.refused or not missed[each.id])
    ]


def options_of(suite: Suite, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line, parsed and checked."""
    parser = argparse.ArgumentParser(description=suite.about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="ID", help="only these; a trailing * matches any ending"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="number of reversals to try, selected by --seed")
    parser.add_argument("--seed", type=int, default=0, help="seed of the hunt's traces and of the sample")
    parser.add_argument("--minutes", type=float, default=10.0, help="CPU minutes for each reversal")
    parser.add_argument("--traces", type=int, metavar="N", help="maximum number of traces for each reversal")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes, each with its own engine")
    engines = ["first", "each", *suite.engines.values()]
    parser.add_argument(
        "--engine", choices=engines, default="first", help="the first engine with the code, each, or one"
    )
    parser.add_argument("--scenarios", action="store_true", help="run the engine's scenarios instead of random traces")
    parser.add_argument("--engine-path", type=Path, metavar="DIR", help="sources of a release, for the installed ones")
    parser.add_argument("--results", type=Path, help="file of results to resume from and to add to")
    parser.add_argument("--list", action="store_true", help="print the reversals, and whether their edits match")
    options = parser.parse_args(arguments)
    for name in ("sample", "traces", "workers"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected at least 1")
    return options


def chosen(suite: Suite, options: argparse.Namespace) -> list[Reversal]:
    """Return the reversals that the options select.

    Raises:
        UsageError: the table does not have a requested name.
    """
    every, found = suite.reversals(), list[Reversal]()
    for name in options.only:
        begins = name.removesuffix("*")
        here = [each for each in every if each.id == name or (name != begins and each.id.startswith(begins))]
        if not here:
            raise UsageError(f"--only {name}: unknown reversal; --list prints all")
        found += here
    return sampled(found or every, options.sample, options.seed)


def print_list(suite: Suite, reversals: Sequence[Reversal], options: argparse.Namespace) -> int:
    """Print reversals and edits that do not match the sources; return the exit code."""
    wrong, sources = 0, options.engine_path or installed(next(iter(suite.engines.values())))
    for each in reversals:
        for file in dict.fromkeys(edit.file for edit in each.edits):
            try:
                source = (sources / file).read_text(encoding="utf-8")
                apply_replacements(source, [edit for edit in each.edits if edit.file == file])
            except (EditError, FileNotFoundError) as error:
                wrong += 1
                print(f"REFUSED {each.id}: {error}")
        print(f"{each.id}  [{each.kind}; {', '.join(each.runners)}; {', '.join(each.needs)}]  {each.title}")
    print(f"{len(reversals)} reversals of {len({each.number for each in reversals})} numbers")
    return 1 if wrong else 0


def main(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    """Run the trials of the selected reversals and print the results; return the exit code."""
    options = options_of(suite, arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        reversals = chosen(suite, options)
        if options.list:
            return print_list(suite, reversals, options)
        results = Results(options.results)
        tasks = tasks_of(suite, reversals, options)
        done = []
        for result in run(tasks, options.workers, options.traces, results):
            done.append(result)
            print(line_of(result), flush=True)
    except (UsageError, TableError, EditError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped" + (f"; the same command resumes from {options.results}" if options.results else ""))
        return 130
    wrong = unexpected(done, reversals)
    print(*summary(done), *wrong, sep="\n")
    return 1 if wrong else 0
