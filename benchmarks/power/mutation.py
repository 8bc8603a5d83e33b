"""Measure how many mutants of the engine random traces find, and print the survivors.

Run with `python -m benchmarks.power.mutation --sample 300 --workers 2`. Mutated are the engine and its ops as `sim`
runs them (see `benchmarks.power.mutants`), but not the lanes: the simulated machine belongs to the tester. A mutant
runs those of the mixed generator's first N traces that execute its line, each under its own schedule, until one ends
with a finding, takes too long or kills its process. Survivors are looked up in `survivors.csv` in this folder;
`docs/results/mutation.md` explains the results.

Exit code 1 if a survivor is not classified there or is blind, or if a classified one is found or no longer exists; 2
for invalid options, 3 if a trace does not agree on the engine without faults. With `--results FILE` results are stored:
the same command resumes from them, and with more traces it runs survivors on the additional ones.
"""

import argparse
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import sqrt
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

from benchmarks.power.line_coverage import FOLDERS, ROOT, TWIN, definitions_run
from benchmarks.power.mutant_runs import Clean, Outcome, Runner, Task, in_fork, run_clean, traces_from
from benchmarks.power.mutants import Mutant, mutants_of
from benchmarks.power.survivors import CLASSES, HARMLESS, SURVIVORS, Classified, TableError, classified, row_of
from scenarios.generation.shards import TRACES_PER_SHARD
from workers.run.process import prepare_process

# It counts probes; the engine does not read them.
OBSERVER = "observer.py"
Z = 1.959963984540054


class UsageError(Exception):
    """The options are invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """A mutant's outcome after `traces` traces; `met` of them execute its line."""

    outcome: Outcome
    traces: int
    met: int


def default_files() -> list[str]:
    """Return the files to mutate: the engine's, and its ops' twins that run on `sim`."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    wanted = [path for path in found if path.name == TWIN or "kernels" not in path.parts] + definitions_run()
    return [str(path.relative_to(ROOT)) for path in wanted if path.name not in ("__init__.py", OBSERVER)]


def files_in(paths: Sequence[str]) -> list[str]:
    """Return the files to mutate that are in the given paths.

    Raises:
        UsageError: a path contains none.
    """
    found: dict[str, None] = {}
    for path in paths:
        relative = Path(os.path.relpath(path, ROOT)).as_posix()
        here = [file for file in default_files() if file == relative or file.startswith(f"{relative}/")]
        if not here:
            raise UsageError(f"{path}: no file of the engine, and no NumPy twin of an op, is there")
        found.update(dict.fromkeys(here))
    return list(found)


def all_mutants(files: Sequence[str]) -> list[Mutant]:
    """Return the mutants of the given files."""
    return [each for file in files for each in mutants_of(file, (ROOT / file).read_text(encoding="utf-8"))]


def sampled(mutants: Sequence[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """Return `count` mutants in a seed's order; a larger sample begins with the smaller one.

    The order follows from a mutant's key, so that a change elsewhere leaves most of a sample unchanged.
    """
    ordered = sorted(mutants, key=lambda mutant: sha256(f"{seed} {mutant.key}".encode()).digest())
    return ordered[:count]


class Results:
    """Results of mutants, stored as JSON lines if a file is given; a later line replaces."""

    def __init__(self, file: Path | None, build: str) -> None:
        self.by_key: dict[str, Result] = {}
        self.num_of_other_builds = 0
        self._build = build
        self._file = file
        if file is not None:
            self._read(file)

    def _read(self, file: Path) -> None:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        for number, line in enumerate(lines, 1):
            if number == len(lines) and not line.endswith("\n"):
                # A truncated last line belongs to a mutant that was interrupted.
                with file.open("r+b") as opened:
                    opened.truncate(sum(len(each.encode()) for each in lines[:-1]))
                break
            try:
                read = json.loads(line)
                result = Result(Outcome(**read["outcome"]), read["traces"], read["met"])
                is_of_this_build = read["build"] == self._build
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{file}: line {number}: not a result of this benchmark ({error})") from error
            if is_of_this_build:
                self.by_key[result.outcome.key] = result
            else:
                self.num_of_other_builds += 1

    def add(self, result: Result) -> None:
        """Add a mutant's result, and append it to the file if there is one."""
        self.by_key[result.outcome.key] = result
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"build": self._build, **asdict(result)}) + "\n")


_runners: list[Runner] = []


def _prepare(traces: int, clean: Sequence[Clean]) -> None:
    """Create the runner of a pool process, which ignores interrupts: the main process ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_process()
    if clean:
        _runners.append(Runner(list(traces_from(0, traces)), clean))


def _outcome(task: Task) -> Outcome:
    return _runners[-1].outcome(task)


def _clean_shard(files: Sequence[str], span: tuple[int, int]) -> list[Clean]:
    traces = list(traces_from(*span))
    ended = in_fork(lambda: run_clean(files, traces))
    if ended.value is None:
        raise RuntimeError(f"traces {span[0]} to {sum(span) - 1} ended by signal {ended.signal} on the clean engine")
    return ended.value


def clean_runs(files: Sequence[str], count: int, workers: int) -> list[Clean]:
    """Return the results of the first `count` traces on the engine without faults."""
    spans = [(first, min(TRACES_PER_SHARD, count - first)) for first in range(0, count, TRACES_PER_SHARD)]
    with _pool(workers) as pool:
        return [each for part in pool.starmap(_clean_shard, [(files, span) for span in spans], 1) for each in part]


def _pool(workers: int, traces: int = 0, clean: Sequence[Clean] = ()) -> Pool:
    # A fork loses the threads of a library.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return get_context("spawn").Pool(workers, _prepare, (traces, clean))


def meeting(mutant: Mutant, clean: Sequence[Clean]) -> tuple[int, ...]:
    """Return the traces that execute a mutant's line; all traces if it runs at import.

    All traces too for a line in a function that no trace executes: it may run when another module is loaded.
    """
    every = tuple(range(len(clean)))
    if not mutant.in_function:
        return every
    return tuple(i for i in every if not clean[i].lines[mutant.file].isdisjoint(mutant.lines)) or every


def run_mutants(mutants: Sequence[Mutant], clean: Sequence[Clean], workers: int, results: Results) -> Iterator[Result]:
    """Yield the results of mutants as they end; stored results are not computed again."""
    tasks, met = [], {}
    for mutant in mutants:
        before = results.by_key.get(mutant.key)
        if before is not None and (not before.outcome.survived or before.traces >= len(clean)):
            continue
        first = before.traces if before is not None else 0
        traces = meeting(mutant, clean)
        met[mutant.key] = len(traces)
        tasks.append(Task(mutant.key, mutant.file, mutant.index, tuple(each for each in traces if each >= first)))
    if not tasks:
        return
    with _pool(workers, len(clean), clean) as pool:
        for outcome in pool.imap_unordered(_outcome, tasks):
            before = results.by_key.get(outcome.key)
            if before is not None and outcome.survived:
                found = {before.outcome.changed, outcome.changed}
                changed = next(each for each in ("captures", "probes", "nothing") if each in found)
                outcome = Outcome(outcome.key, outcome.how, changed=changed)  # noqa: PLW2901
            result = Result(outcome, len(clean), met[outcome.key])
            results.add(result)
            yield result


def interval(part: int, whole: int) -> str:
    """Return a share in per cent with its 95 % confidence interval (Wilson)."""
    if not whole:
        return "-"
    share, spread = part / whole, Z * Z / whole
    middle, half = share + spread / 2, Z * sqrt(share * (1 - share) / whole + spread / whole / 4)
    low, high = ((middle - half) / (1 + spread), (middle + half) / (1 + spread))
    return f"{share:.1%} [{low:.1%}, {high:.1%}]"


def report(mutants: Sequence[Mutant], results: Mapping[str, Result], known: Mapping[str, Classified]) -> int:
    """Print score, classes and survivors; return the number of blind or unclassified ones."""
    done = [results[mutant.key] for mutant in mutants if mutant.key in results]
    alive = [result for result in done if result.outcome.survived]
    hows = Counter(result.outcome.how for result in done if not result.outcome.survived)
    by_class: dict[str, list[Result]] = defaultdict(list)
    for result in alive:
        known_here = known.get(result.outcome.key)
        by_class[known_here.kind if known_here else "not classified"].append(result)
    found, harmless = len(done) - len(alive), sum(len(by_class[kind]) for kind in HARMLESS)
    print(f"{len(done)} mutants: {found} found ({', '.join(f'{n} {how}' for how, n in hows.most_common())})")
    print(f"score {interval(found, len(done))}; without harmless ones {interval(found, len(done) - harmless)}")
    for kind in (*CLASSES, "not classified"):
        if by_class[kind]:
            print(f"{len(by_class[kind]):5} {kind}")
    wrong = [*by_class["blind"], *by_class["not classified"]]
    for result in wrong:
        label = "BLIND" if result.outcome.key in known else "NOT CLASSIFIED"
        print(f"{label}: {result.outcome.key}  (met {result.met} traces, changed {result.outcome.changed})")
    return len(wrong)


def out_of_date(known: Mapping[str, Classified], mutants: Sequence[Mutant], results: Mapping[str, Result]) -> list[str]:
    """Return the table's rows for mutants that no longer exist, or are found after all."""
    every, found = {mutant.key for mutant in mutants}, []
    for key, row in known.items():
        where = f"{SURVIVORS}: line {row.at}"
        if key not in every:
            found.append(f"{where}: the mutant no longer exists: {key}")
        elif key in results and not results[key].outcome.survived and row.kind != "rare":
            how = results[key].outcome
            found.append(f"{where}: {row.kind}, but trace {how.trace} ends {how.how} ({how.detail}): {key}")
    return found


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line, parsed and checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="number of mutants to run (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample and its order (default 0)")
    parser.add_argument("--traces", type=int, default=300, help="number of random traces (default 300)")
    parser.add_argument("--paths", nargs="+", default=[], help="only mutants of these files or folders")
    parser.add_argument("--match", default="", help="only mutants with this text in their key, as --list prints it")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the mutants (default 1)")
    parser.add_argument("--results", type=Path, help="file of results to resume from and to add to")
    parser.add_argument("--survivors", action="store_true", help=f"print every survivor as a row of {SURVIVORS}")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    options = parser.parse_args(arguments)
    for name in ("sample", "traces", "workers"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutants and print the survivors; return the exit code."""
    options = options_of(arguments)
    try:
        return _run(options)
    except (UsageError, TableError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped" + (f"; the same command resumes from {options.results}" if options.results else ""))
        return 130


def _run(options: argparse.Namespace) -> int:
    # It loads the engine, which a process that forks for mutants must not have loaded.
    from cluster.dispatch.job import build  # noqa: PLC0415

    files = files_in(options.paths) if options.paths else default_files()
    every = all_mutants(files)
    mutants = sampled([each for each in every if options.match in each.key], options.sample, options.seed)
    if not mutants:
        raise UsageError(f"no mutant matches {options.match!r}; --list prints all keys")
    # Without paths all rows count, including rows of deleted files.
    known = {key: row for key, row in classified().items() if not options.paths or key.split(" | ")[0] in files}
    if options.list:
        print(
            "\n".join(f"{mutant.key}  [{known[mutant.key].kind if mutant.key in known else '-'}]" for mutant in mutants)
        )
        return 0
    results = Results(options.results, build())
    if results.num_of_other_builds:
        print(f"{options.results}: {results.num_of_other_builds} results of other code are not used")
    print(f"{len(mutants)} of {len(every)} mutants in {len(files)} files, {options.traces} traces", flush=True)
    clean = clean_runs(files, options.traces, options.workers)
    odd = [f"trace {number}: {each.verdict}" for number, each in enumerate(clean) if each.verdict != "agreed"]
    if odd:
        print("the engine without faults does not agree:", *odd, sep="\n")
        return 3
    for number, result in enumerate(run_mutants(mutants, clean, options.workers, results), 1):
        if result.outcome.survived and result.outcome.key not in known:
            print(f"{number}: survives {result.outcome.key}", flush=True)
    wrong, stale = report(mutants, results.by_key, known), out_of_date(known, every, results.by_key)
    print(*stale, sep="\n", end="\n" if stale else "")
    if options.survivors:
        alive = [mutant for mutant in mutants if results.by_key[mutant.key].outcome.survived]
        reasons = {mutant: known[mutant.key].reason if mutant.key in known else "?" for mutant in alive}
        rows = sorted((mutant.names, reason) for mutant, reason in reasons.items())
        print(*(row_of(names, reason) for names, reason in rows), sep="\n")
    return 1 if wrong or stale else 0


if __name__ == "__main__":
    sys.exit(main())
