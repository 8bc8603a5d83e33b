"""Write the tables of `docs/results/vllm_power.md`: results of reversals, and bugs of 2026.

`python -m benchmarks.power.vllm_power.page [--results FILE]`. Results are JSON lines of the benchmark, by default
`results.jsonl` in this folder; `bugs.py` lists for each collected bug what expresses it, or what is missing.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.power.reversals.runs import Results
from benchmarks.power.reversals.table import Reversal as AnyReversal
from benchmarks.power.reversals.trial import Result
from benchmarks.power.vllm_power.bugs import bugs, descriptions, missing_features
from benchmarks.power.vllm_power.reversals import ENGINES, Reversal, all_reversals
from workers.edits.fix import finding_of
from workers.targets.vllm.installation import ROOT

FOLDER = Path(__file__).resolve().parent
PAGE = ROOT / "docs" / "results" / "vllm_power.md"
MEASURED = FOLDER / "results.jsonl"
_PART = re.compile(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", re.DOTALL)


def parts(reversals: Sequence[Reversal], results: Mapping[str, Result]) -> dict[str, str]:
    """Return the generated sections of the page, by name."""
    return {**measured(reversals, results, ENGINES), "bugs": "\n".join(of_bugs(reversals))}


def measured(
    reversals: Sequence[AnyReversal], results: Mapping[str, Result], engines: Mapping[str, str]
) -> dict[str, str]:
    """Return the sections with the results of reversals on engines, which are given by runner."""
    by_engine = {(result.id, result.engine): result for result in results.values() if result.source == "drawn"}
    return {
        "figures": "\n".join(_figures(reversals, list(by_engine.values()), engines)),
        "reversals": "\n".join(_table(reversals, by_engine, engines)),
        "missed": "\n".join(_missed(reversals, by_engine, engines)),
    }


def written(page: str, of: Mapping[str, str]) -> str:
    """Return a page with its generated sections replaced."""
    return _PART.sub(lambda found: f"<!-- {found[1]} -->\n{of[found[1]]}\n<!-- /{found[1]} -->", page)


def _figures(reversals: Sequence[AnyReversal], results: Sequence[Result], engines: Mapping[str, str]) -> Iterator[str]:
    yield f"{len(reversals)} reversals of {len({each.number for each in reversals})} fixes, reports and changes."
    for engine in engines.values():
        here = [each for each in results if each.engine == engine]
        found = [each for each in here if each.found is not None]
        if not found:
            continue
        traces, seconds = median(each.traces for each in found), median(each.seconds for each in found)
        near = Counter(each.found.nearness for each in found if each.found is not None)
        planes = Counter(each.found.plane for each in found if each.found is not None)
        yield (
            f"- `{engine}`: {len(found)} of {len(here)} found; median {traces:g} traces and {seconds:.0f} s of CPU."
            f" Planes of the first finding: {_counts(planes)}. The first report names the edited function in"
            f" {near['function']}, its file in {near['file']}, another location in {near['elsewhere']}, none in"
            f" {near['nowhere']}."
        )


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in of.most_common())


def _table(
    reversals: Sequence[AnyReversal], told: Mapping[tuple[str, str], Result], engines: Mapping[str, str]
) -> Iterator[str]:
    kind = ""
    for each in reversals:
        if each.kind != kind:
            kind = each.kind
            yield f"\n### {kind.capitalize()}\n"
            yield _row("reversal", "what it brings back", "needs", "expected", *engines, "report")
            yield _row(*["---"] * (5 + len(engines)))
        number = f"`{each.id}`" + ("" if each.source == "fix" else f" ({each.source})")
        cells = [_cell(each, runner, told.get((each.id, engine))) for runner, engine in engines.items()]
        found = [told[each.id, engine].found for engine in engines.values() if (each.id, engine) in told]
        near = dict.fromkeys(one.nearness for one in found if one is not None)
        yield _row(number, each.title, ", ".join(each.needs), each.plane, *cells, ", ".join(near) or "-")


def _cell(reversal: AnyReversal, runner: str, result: Result | None) -> str:
    if runner not in reversal.runners:
        return "no code"
    if result is None:
        return "not measured"
    if result.found is None:
        return "refused" if result.refused else f"missed in {result.traces}"
    return f"{result.traces} ({result.seconds:.0f} s), {result.found.plane}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _missed(
    reversals: Sequence[AnyReversal], told: Mapping[tuple[str, str], Result], engines: Mapping[str, str]
) -> Iterator[str]:
    for each in reversals:
        where = [engine for engine in engines.values() if _is_missed(told.get((each.id, engine)))]
        why = each.expected_missed
        if where or why:
            yield f"- `{each.id}` ({', '.join(where) or 'not measured'}): {why or 'not explained yet'}."


def _is_missed(result: Result | None) -> bool:
    return result is not None and result.found is None


def of_bugs(reversals: Sequence[AnyReversal], folder: Path = FOLDER) -> Iterator[str]:
    """Yield Markdown tables of collected bugs: expressible or not, and missing features."""
    lacks = {bug: missing_features(bug, folder) for bug in bugs(folder)}
    now = [bug for bug, names in lacks.items() if not names]
    alone = Counter(names[0] for names in lacks.values() if len(names) == 1)
    all_of_it = Counter(name for names in lacks.values() for name in names)
    described = descriptions(folder)
    yield f"{len(now)} of {len(lacks)} can be expressed ({100 * len(now) / len(lacks):.0f} %).\n"
    yield _row("missing feature", "bugs that need it", "and nothing else")
    yield _row(*["---"] * 3)
    for name, count in sorted(all_of_it.items(), key=lambda each: (-each[1], each[0])):
        yield _row(f"{name}: {described[name]}", str(count), str(alone[name]))
    by_number: dict[int, list[str]] = {}
    for each in reversals:
        by_number.setdefault(each.number, []).append(f"`{each.id}`")
    yield "\n### What can be expressed\n"
    yield _row("number", "class", "what", "engines", "a trace has", "planes", "evidence")
    yield _row(*["---"] * 7)
    for bug in now:
        files = [f"[{finding_of(ROOT / path) or Path(path).stem}](../../{path})" for path in bug.evidence]
        yield _row(
            f"#{bug.number}",
            bug.kind,
            bug.what,
            ", ".join(bug.engines),
            f"`{' '.join(bug.trace)}`",
            ", ".join(bug.planes),
            ", ".join([*by_number.get(bug.number, []), *files]),
        )
    yield "\n### What cannot\n"
    yield _row("number", "class", "what", "missing", "reversal")
    yield _row(*["---"] * 5)
    for bug, names in lacks.items():
        if names:
            ids = ", ".join(by_number.get(bug.number, ["-"]))
            yield _row(f"#{bug.number}", bug.kind, bug.what, ", ".join(names), ids)


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the generated sections into the page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=MEASURED, help="results of the benchmark, JSON lines")
    options = parser.parse_args(None if arguments is None else list(arguments))
    results = Results(options.results).by_key
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), parts(all_reversals(), results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
