"""Selection of scenarios for a change of an engine's sources.

It uses a record of the functions and blocks that each scenario executes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from scenarios.generation.weights import Area
from workers.edits.functions import MODULE, Edit, edits_of, functions_of
from workers.targets.executed import Executed

# The most functions that a sentence lists.
_NAMED = 3
FOCUS_AREAS_MAX = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """The scenarios for a change, in order, with sentences that explain the choice.

    `is_all` means that no scenario was left out.
    """

    scenarios: tuple[str, ...]
    lines: tuple[str, ...]
    is_all: bool = False


def edits_in(
    files: Iterable[str],
    package: str,
    before: Callable[[str], bytes | None],
    after: Callable[[str], bytes | None],
    recorded: Callable[[str], bytes | None],
) -> list[Edit]:
    """Return, for each changed Python file of a package, the functions that differ.

    `recorded` returns a file of the release on which the executed functions were recorded. If a function was already
    different from that release before the change, the whole function counts as changed.
    """
    found = []
    for file in files:
        if file.startswith(f"{package}/") and file.endswith(".py"):
            old = _text(before(file))
            edits = edits_of(file, old, _text(after(file)))
            if any(edit.blocks != {0} for edit in edits):
                edits = _of_recorded_blocks(edits, old, _text(recorded(file)))
            found += edits
    return found


def _text(content: bytes | None) -> str | None:
    return content.decode(errors="replace") if content is not None else None


def _of_recorded_blocks(edits: Sequence[Edit], before: str | None, recorded: str | None) -> list[Edit]:
    try:
        old, same = (functions_of(each or "") for each in (before, recorded))
    except (SyntaxError, ValueError, RecursionError):
        same = {}
    return [
        edit if edit.function in same and same[edit.function].source == old[edit.function].source else edit.as_a_whole()
        for edit in edits
    ]


def selection_of(edits: Sequence[Edit], record: Executed, names: Sequence[str], smoke: Sequence[str]) -> Selection:
    """Select the scenarios that execute the changed functions.

    Scenarios that execute changed blocks come first: next is always the one that executes most blocks of the changed
    files that no earlier one does. Scenarios without a record follow. If no scenario executes a changed block, those
    for smoke are selected. All others are left out.
    """
    if not edits:
        few = [name for name in names if name in smoke]
        line = f"no function has changed; to judge: {len(few)} of {len(names)} scenarios, as a smoke test"
        return Selection(tuple(few), (line,), len(few) == len(names))
    known = [name for name in names if name in record.scenarios]
    unknown = [name for name in names if name not in record.scenarios]
    by_edit = {edit: executing(edit, record) & set(known) for edit in edits}
    chosen = _in_order([name for name in known if any(name in found for found in by_edit.values())], edits, record)
    first = chosen or [name for name in known if name in smoke]
    lines = [f"changed functions: {_named([_short(edit) for edit in edits])}"]
    never = [_short(edit) for edit, found in by_edit.items() if not found]
    if never:
        lines.append(f"no scenario executes {_named(never)} (recorded on release {record.release})")
    left_out = len(known) - len(first)
    what = "which execute changed functions, largest share of the changed files first" if chosen else "as a smoke test"
    parts = [f"to judge: {len(first)} of {len(names)} scenarios, {what}"]
    if unknown:
        parts.append(f"then {len(unknown)} without a record")
    if left_out:
        parts.append(f"{left_out} that execute none of them are left out")
    lines.append("; ".join(parts))
    return Selection((*first, *unknown), tuple(lines), not left_out)


def focus_of(files: Iterable[str], areas: Mapping[Area, Sequence[str]]) -> tuple[Area, ...]:
    """Return the areas of situations that match the paths of the changed files.

    A change of more than FOCUS_AREAS_MAX areas has no focus: a trace would have a bit of everything.
    """
    changed = [*files]
    found = [area for area, patterns in areas.items() if any(fnmatch(each, at) for each in changed for at in patterns)]
    return tuple(found) if len(found) <= FOCUS_AREAS_MAX else ()


def executing(edit: Edit, record: Executed) -> frozenset[str]:
    """Return the scenarios that execute the changed blocks of a function.

    A new method may override one of another class: it counts as its class. Other new functions are executed by their
    callers, which then differ too. Statements outside functions count as their whole file.
    """
    if edit.function == MODULE or edit.is_compiled:
        return record.of_file(edit.file)
    if edit.change == "new":
        owner = edit.function.rpartition(".")[0]
        is_method = owner and not owner.endswith("<locals>")
        return record.of_functions(f"{edit.name.removesuffix(edit.function)}{owner}.") if is_method else frozenset()
    return frozenset().union(*(record.of_block(edit.name, number) for number in edit.blocks))


def _in_order(names: Sequence[str], edits: Sequence[Edit], record: Executed) -> list[str]:
    """Order scenarios so that each adds as many blocks of the changed files as possible."""
    executes: Mapping[str, set[tuple[str, int]]] = {name: set() for name in names}
    for function, blocks in record.of_files({edit.file for edit in edits}):
        for number, scenarios in enumerate(blocks):
            for name in scenarios & executes.keys():
                executes[name].add((function, number))
    ordered: list[str] = []
    seen: set[tuple[str, int]] = set()
    left = list(names)
    while left:
        best = max(left, key=lambda name: (len(executes[name] - seen), len(executes[name])))
        left.remove(best)
        ordered.append(best)
        seen |= executes[best]
    return ordered


def _short(edit: Edit) -> str:
    return f"{'its module' if edit.function == MODULE else edit.function} ({edit.file})"


def _named(functions: Sequence[str]) -> str:
    more = f" and {len(functions) - _NAMED} more" if len(functions) > _NAMED else ""
    return f"{', '.join(functions[:_NAMED])}{more}"
