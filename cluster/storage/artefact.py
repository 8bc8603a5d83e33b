"""Artefact: the trace of a finding as a file that replays it, with what was found in a comment above."""

import os
from collections.abc import Iterator
from hashlib import blake2b
from itertools import permutations
from pathlib import Path

from cluster.dispatch.job import command
from cluster.dispatch.origin import ROOT
from scenarios import codec
from scenarios.codec import comment
from workers.record.verdict import (
    Agreed,
    Crashed,
    Difference,
    Diverged,
    Judgement,
    Lost,
    Outcome,
    Stuck,
    Vacuous,
    Verdict,
    plane,
)
from workers.targets.target import DEFAULT_CONFIG, RunConfig

ORDER = " > "
SCHEMA = Path("scenarios", "scenario.schema.json")


def artefact_name(judgement: Judgement) -> str:
    """Return `<plane>-<digest of the trace>.yaml`."""
    digest = blake2b(codec.dumps(judgement.trace).encode(), digest_size=4).hexdigest()
    return f"{plane(judgement.verdict)}-{digest}.yaml"


def portable(name: str) -> str:
    """Return a path that says nothing about this host: relative to the working directory, or else the bare name."""
    path = Path(name)
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def artefact_text(judgement: Judgement, scenario: str, config: RunConfig = DEFAULT_CONFIG) -> str:
    """Return the explicit trace of a finding under a comment that says what was found and how to see it again."""
    lines = [f"{judgement.verdict.kind}: found by {portable(scenario)}", *finding_lines(judgement.verdict)]
    lines += outcome_lines(judgement.outcomes)
    if len({outcome.agrees for outcome in judgement.outcomes}) > 1:
        lines += [f"under {outcome.schedule}: {outcome.result}" for outcome in judgement.outcomes]
    lines.append(f"replay: {command('replay', artefact_name(judgement), config)}")
    return comment(lines) + codec.dumps(judgement.trace)


def finding_lines(verdict: Verdict) -> list[str]:
    """Return the facts of a finding, one per line."""
    match verdict:
        case Diverged(difference=difference):
            return list(_difference_lines(difference))
        case Crashed(error=error, where=where, missing_order=order):
            return [f"in {where}: {error}", *([f"missing order: {order}"] if order is not None else [])]
        case Stuck(reason=reason):
            return [reason]
        case Vacuous(missing=missing):
            return list(missing)
        case Lost(reason=reason):
            return [reason]
        case Agreed():
            return []


def _difference_lines(difference: Difference) -> Iterator[str]:
    if difference.request:
        position = "" if difference.position is None else f" at position {difference.position}"
        commit = f", commit {difference.commit}" if difference.commit else ""
        yield f"request {difference.request}{position}{commit}, step {difference.step}"
    yield f"{difference.variable} is {difference.actual}, expected {difference.expected}   (plane: {difference.plane})"
    if difference.writers:
        yield f"last writers, newest first: {', '.join(difference.writers)}"
    if difference.missing_order is not None:
        yield f"missing order: {difference.missing_order}"


def outcome_lines(outcomes: tuple[Outcome, ...]) -> list[str]:
    """Return under which schedules a finding shows and under which it does not; lane orders are counted."""
    lines = []
    for text, agrees in (("shows under", False), ("does not show under", True)):
        names = [outcome.schedule for outcome in outcomes if outcome.agrees is agrees]
        simple = [name for name in names if ORDER not in name]
        num_orders = len(names) - len(simple)
        orders = [f"{num_orders} lane orders"] if num_orders else []
        if names:
            lines.append(f"{text}: {', '.join(simple + orders)}")
    pairs = telling_pairs(outcomes)
    if pairs:
        named = " and ".join(f"{first} before {second}" for first, second in pairs)
        lines.append(f"it shows in exactly those lane orders with {named}")
    return lines


def telling_pairs(outcomes: tuple[Outcome, ...]) -> list[tuple[str, str]]:
    """Return the ordered pairs of lanes that decide whether a finding shows; empty if none does."""
    orders = [(outcome.schedule.split(ORDER), outcome.agrees) for outcome in outcomes if ORDER in outcome.schedule]
    if len({agrees for _, agrees in orders}) < 2:
        return []
    pairs = permutations(sorted(orders[0][0]), 2)
    return [pair for pair in pairs if all(_before(order, pair) is not agrees for order, agrees in orders)]


def _before(order: list[str], pair: tuple[str, str]) -> bool:
    return order.index(pair[0]) < order.index(pair[1])


def schema_line(folder: Path) -> str:
    """Return the comment that names an editor the schema of scenario files in a folder of a checkout, else nothing."""
    schema, here = ROOT / SCHEMA, folder.resolve()
    if not (schema.is_file() and here.is_relative_to(ROOT)):
        return ""
    return f"# yaml-language-server: $schema={Path(os.path.relpath(schema, here)).as_posix()}\n"


def write_artefact(folder: Path, judgement: Judgement, scenario: str, config: RunConfig = DEFAULT_CONFIG) -> Path:
    """Write the artefact of a finding and return its path; writing the same finding again changes nothing."""
    path = folder / artefact_name(judgement)
    write_atomically(path, schema_line(folder) + artefact_text(judgement, scenario, config))
    return path


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that at any moment it is complete or absent, and on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
