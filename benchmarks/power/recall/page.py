"""Tables of `docs/results/recall.md`: how many fixes hunts had shown, and what the others need."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from benchmarks.power.recall.census import RELEASES, Fix, Outcome, fixes, mechanisms, outcome, results
from benchmarks.power.reversals.trial import Result
from workers.targets.vllm.installation import ROOT

PAGE = ROOT / "docs" / "results" / "recall.md"


def parts() -> dict[str, str]:
    """Return the generated sections of the page, by name.

    Raises:
        CensusError: the census is invalid.
    """
    census = {engine: fixes(engine) for engine in RELEASES}
    tried = {engine: results(engine) for engine in RELEASES}
    sections = {"figures": "\n".join(figures(census, tried)), "missing": "\n".join(_missing(census))}
    for engine, rows in census.items():
        sections[engine] = "\n".join(_expressible(rows, tried[engine]))
        sections[f"{engine}_rest"] = "\n".join(_rest(rows))
    return sections


def figures(census: Mapping[str, Sequence[Fix]], tried: Mapping[str, Mapping[str, Result]]) -> Iterator[str]:
    """Yield a table with the number of fixes of each engine by outcome."""
    yield _row("", *(f"{engine} {old} to {new}" for engine, (old, new) in RELEASES.items()))
    yield _row(*["---"] * (1 + len(RELEASES)))
    counts = {engine: Counter(outcome(fix, tried[engine]) for fix in rows) for engine, rows in census.items()}
    yield _row("fixes", *(str(len(rows)) for rows in census.values()))
    for name in get_args(Outcome):
        yield _row(name, *(str(counts[engine][name]) for engine in census))


def _missing(census: Mapping[str, Sequence[Fix]]) -> Iterator[str]:
    counts = {engine: Counter(fix.missing for fix in rows if fix.missing) for engine, rows in census.items()}
    yield _row("missing mechanism", *census)
    yield _row(*["---"] * (1 + len(census)))
    for name, what in sorted(mechanisms().items(), key=lambda each: -sum(of[each[0]] for of in counts.values())):
        yield _row(f"{name}: {what}", *(str(of[name]) for of in counts.values()))


def _expressible(rows: Sequence[Fix], tried: Mapping[str, Result]) -> Iterator[str]:
    yield _row("row", "number", "file", "what was wrong", "outcome", "evidence", "a judge that it needs")
    yield _row(*["---"] * 7)
    for fix in rows:
        if fix.status != "not expressible":
            seen = outcome(fix, tried)
            needed = fix.judge if seen in ("missed", "not tried") else ""
            yield _row(
                str(fix.row), _number(fix), f"`{fix.file}`", fix.what, seen, _evidence(fix, tried), needed or "-"
            )


def _evidence(fix: Fix, tried: Mapping[str, Result]) -> str:
    if fix.finding:
        return f"[{fix.finding}](../../findings/{fix.finding}/README.md)"
    result = tried.get(fix.reversal)
    if result is None:
        return f"`{fix.reversal}`" if fix.reversal else "-"
    plane = f", {result.found.plane}" if result.found is not None else ""
    return f"`{fix.reversal}`: {result.traces} traces{plane}"


def _rest(rows: Sequence[Fix]) -> Iterator[str]:
    yield _row("row", "number", "file", "class", "what was wrong", "missing")
    yield _row(*["---"] * 6)
    for fix in rows:
        if fix.missing:
            yield _row(str(fix.row), _number(fix), f"`{fix.file}`", fix.kind, fix.what, fix.missing)


def _number(fix: Fix) -> str:
    return f"#{fix.number}" if fix.number else "-"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
