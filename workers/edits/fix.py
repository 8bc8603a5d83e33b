"""Fixes of known bugs: for each finding, the edits of the engine's source with which its trace agrees."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from scenarios.spec import Value
from scenarios.strict_yaml import ScenarioError, read
from workers.edits.edit import Edit, EditError, edited_tree
from workers.edits.functions import MODULE, name_of

FINDINGS = Path(__file__).resolve().parents[2] / "findings"
# What the folder of a finding has: the fix, the smallest trace that reproduces the bug, and the page.
FILE, TRACE, PAGE = "fix.yaml", "trace.yaml", "README.md"
# Selections of fixes: all of them, or those of races, which change no result of a run in the right order.
ALL, RACES = "all", "races"


class Fix(Value):
    """The fix of one finding: what it changes, in one sentence, and the edits, all of which it needs.

    The fix of a `race` adds an order of host and device that is missing, and changes nothing else.
    """

    summary: str
    race: bool = False
    edits: Annotated[tuple[Edit, ...], Field(min_length=1)]

    @property
    def package(self) -> str:
        """The Python package that it edits."""
        return self.edits[0].module.partition(".")[0]

    def has_run(self, functions: Collection[str]) -> bool:
        """Return whether a function that it edits is among those that ran, each as `FILE:FUNCTION`.

        An edit outside functions counts as run once any statement outside functions of its file is among them.
        """
        return any(name_of(edit.file, of) in functions for edit in self.edits for of in (edit.function, MODULE))


@dataclass(frozen=True, slots=True)
class Applied:
    """Edits of an engine's sources by module: the fixes that they make, and why others are not made, by name."""

    by_module: Mapping[str, tuple[Edit, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


@cache
def fixes_of(package: str, folder: Path = FINDINGS) -> Mapping[str, Fix]:
    """Return the fixes of the findings in a package, by the name of the finding, sorted.

    Raises:
        ScenarioError: a file is no fix; the message names file and line.
    """
    fixes = {file.parent.name: _read(file) for file in sorted(folder.glob(f"{package}_*/{FILE}"))}
    return {name: fix for name, fix in fixes.items() if fix.package == package}


def finding_of(file: Path) -> str:
    """Return the name of the finding whose folder has a file, empty if it is a file from elsewhere."""
    folder = file.resolve().parent
    return folder.name if folder.parent == FINDINGS else ""


def selected(fixes: Mapping[str, Fix], names: str) -> Mapping[str, Fix]:
    """Return the fixes between the commas of `names`, each a name of a finding, `all` or `races`.

    Raises:
        KeyError: there is no fix of a name.
    """
    chosen: set[str] = set()
    for word in filter(None, names.split(",")):
        match word:
            case "all":
                chosen |= fixes.keys()
            case "races":
                chosen |= {name for name, fix in fixes.items() if fix.race}
            case name:
                if name not in fixes:
                    raise KeyError(name)
                chosen.add(name)
    return {name: fix for name, fix in fixes.items() if name in chosen}


def applied(fixes: Mapping[str, Fix], roots: Sequence[Path]) -> Applied:
    """Return the edits of those fixes that fit the sources in `roots`, the first of which that has a file counts.

    A fix is made whole or not at all. It does not fit if one of its edits does not match exactly once, or if an earlier
    fix edits the same part.
    """
    by_module: dict[str, tuple[Edit, ...]] = {}
    refused: dict[str, str] = {}
    sources = {edit.module: _source(edit, roots) for fix in fixes.values() for edit in fix.edits}
    everything = _with({}, [edit for fix in fixes.values() for edit in fix.edits])
    if all(_problem(sources[module], edits) == "" for module, edits in everything.items()):
        return Applied(everything, tuple(fixes))
    for name, fix in fixes.items():
        trial = _with(by_module, fix.edits)
        problems = [_problem(sources[module], trial[module]) for module in {edit.module for edit in fix.edits}]
        if any(problems):
            refused[name] = next(filter(None, problems))
        else:
            by_module.update(trial)
    return Applied(by_module, tuple(name for name in fixes if name not in refused), refused)


def _with(by_module: Mapping[str, tuple[Edit, ...]], edits: Sequence[Edit]) -> dict[str, tuple[Edit, ...]]:
    """Return edits by module, with more edits after those of the same module."""
    found = dict(by_module)
    for edit in edits:
        found[edit.module] = (*found.get(edit.module, ()), edit)
    return found


def _problem(source: str | None, edits: Sequence[Edit]) -> str:
    """Return why edits cannot be made in the source of their module, empty if they can."""
    if source is None:
        return f"there is no module {edits[0].module}"
    try:
        edited_tree(source, edits)
    except EditError as error:
        return str(error)
    return ""


def _source(edit: Edit, roots: Sequence[Path]) -> str | None:
    file = next((root / edit.file for root in roots if (root / edit.file).is_file()), None)
    return file.read_text(encoding="utf-8") if file is not None else None


def _read(file: Path) -> Fix:
    data, lines = read(file.read_text(encoding="utf-8"), str(file))
    try:
        return Fix.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = tuple(first["loc"])
        line = next((lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in lines), 1)
        raise ScenarioError(f"{file}:{line}: {'.'.join(map(str, where))}: {first['msg']}") from error
