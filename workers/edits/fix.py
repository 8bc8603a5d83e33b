"""Fixes of known bugs: source edits that are stored with each finding."""

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from scenarios.spec import Value
from scenarios.strict_yaml import ScenarioError, read
from workers.edits.edit import Edit, EditError, edited_tree, found
from workers.edits.functions import MODULE, name_of

FINDINGS = Path(__file__).resolve().parents[2] / "findings"
# Files in the folder of a finding: the fix, the smallest trace that reproduces the bug, and the page.
FILE, TRACE, PAGE = "fix.yaml", "trace.yaml", "README.md"
# Selections of fixes: all fixes, or the fixes of races, which change no result of a run without a race.
ALL, RACES = "all", "races"


class Fix(Value):
    """Fix of one finding: a summary in one sentence, and edits, all of which must apply.

    The fix of a `race` adds a missing order between host and device, and changes nothing else. `fixed_in` is the first
    release of the engine without the bug, empty if no release is.
    """

    summary: str
    race: bool = False
    fixed_in: Annotated[str, Field(pattern=r"^(\d+(\.\d+)+)?$")] = ""
    edits: Annotated[tuple[Edit, ...], Field(min_length=1)]

    @property
    def package(self) -> str:
        """Name of the Python package that the fix edits."""
        return self.edits[0].module.partition(".")[0]

    def has_run(self, functions: Collection[str]) -> bool:
        """Return whether one of the edited functions is among `functions` (`FILE:FUNCTION`).

        An edit outside functions counts as run if any module-level statement of its file has run.
        """
        return any(name_of(edit.file, of) in functions for edit in self.edits for of in (edit.function, MODULE))


@dataclass(frozen=True, slots=True)
class SelectedEdits:
    """Edits to apply, by module; the fixes that they belong to; fixes that do not match.

    `names` are the fixes that they belong to, `refused` says for each other fix why it is not applied.
    """

    by_module: Mapping[str, tuple[Edit, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


@cache
def fixes_of(package: str, folder: Path = FINDINGS) -> Mapping[str, Fix]:
    """Return the stored fixes for an engine's package, by finding, in alphabetical order.

    Raises:
        ScenarioError: a file is not a valid fix; the message names file and line.
    """
    fixes = {file.parent.name: _read(file) for file in sorted(folder.glob(f"{package}_*/{FILE}"))}
    return {name: fix for name, fix in fixes.items() if fix.package == package}


def finding_of(file: Path) -> str:
    """Return the name of the finding whose folder contains a file; "" for other files."""
    folder = file.resolve().parent
    return folder.name if folder.parent == FINDINGS else ""


def select_fixes(fixes: Mapping[str, Fix], names: str) -> Mapping[str, Fix]:
    """Select fixes by `names`: finding names, `all` or `races`, separated by commas.

    Raises:
        KeyError: a finding has no fix.
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


def select_edits(fixes: Mapping[str, Fix], roots: Sequence[Path]) -> SelectedEdits:
    """Select the fixes that match the sources; return their edits, and why others do not.

    Each file is read from the first folder in `roots` that has it. A fix is applied completely or not at all. It does
    not fit if one of its edits does not match exactly once, or if an earlier fix edits the same part.
    """
    by_module: dict[str, tuple[Edit, ...]] = {}
    refused: dict[str, str] = {}
    sources = {edit.module: _source(edit, roots) for fix in fixes.values() for edit in fix.edits}
    trees = {module: ast.parse(source) for module, source in sources.items() if source is not None}
    for name, fix in fixes.items():
        if why := _mismatch(fix, trees):
            refused[name] = why
    matching = {name: fix for name, fix in fixes.items() if name not in refused}
    # Trying one fix after another edits each module many times: all at once takes seconds instead of a minute.
    everything = _with({}, [edit for fix in matching.values() for edit in fix.edits])
    if all(_problem(sources[module], edits) == "" for module, edits in everything.items()):
        return SelectedEdits(everything, tuple(matching), refused)
    for name, fix in matching.items():
        trial = _with(by_module, fix.edits)
        problems = [_problem(sources[module], trial[module]) for module in {edit.module for edit in fix.edits}]
        if any(problems):
            refused[name] = next(filter(None, problems))
        else:
            by_module.update(trial)
    return SelectedEdits(by_module, tuple(name for name in fixes if name not in refused), refused)


def _mismatch(fix: Fix, trees: Mapping[str, ast.Module]) -> str:
    """Return why an edit of a fix does not match its module exactly once; empty if all match."""
    for edit in fix.edits:
        if edit.module not in trees:
            return f"there is no module {edit.module}"
        try:
            found(trees[edit.module], edit)
        except EditError as error:
            return str(error)
    return ""


def _with(by_module: Mapping[str, tuple[Edit, ...]], edits: Sequence[Edit]) -> dict[str, tuple[Edit, ...]]:
    """Return a copy of `by_module` with more edits added."""
    found = dict(by_module)
    for edit in edits:
        found[edit.module] = (*found.get(edit.module, ()), edit)
    return found


def _problem(source: str | None, edits: Sequence[Edit]) -> str:
    """Return why edits cannot be applied to their module's source; empty if they can."""
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
