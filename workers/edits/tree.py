"""Writes edited modules as a source tree that overlays an installed package."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from workers.edits.edit import Edit, EditError, apply_replacements


def overlay(edits: Sequence[Edit], installed: Path, folder: Path) -> Path:
    """Write the edited modules, and their package's `__init__.py`, into `folder`; return it.

    `installed` is the folder that contains the installed package. No line of a module moves.

    Raises:
        EditError: a module does not exist, an edit does not match, or an edit inserts statements, which have no line.
    """
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        if edit.anchor:
            raise EditError(f"{edit.at}: a source tree cannot hold inserted statements; use find and put")
        by_file[edit.file].append(edit)
        package = edit.module.partition(".")[0]
        first = folder / package / "__init__.py"
        first.parent.mkdir(parents=True, exist_ok=True)
        first.write_bytes((installed / package / "__init__.py").read_bytes())
    for file, of_file in by_file.items():
        path = installed / file
        if not path.is_file():
            raise EditError(f"{of_file[0].at}: there is no module {of_file[0].module} in {installed}")
        text = apply_replacements(path.read_text(encoding="utf-8"), of_file)
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return folder
