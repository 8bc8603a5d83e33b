"""Record which functions and blocks of an engine run, by statements inserted at import.

The statement is inserted when a module is imported, and has the line number of the statement after it: no line number
changes, and neither does the source text. Functions compiled from their source or byte code (`numba`, `torch.jit`) are
not changed. Triton kernels are not changed either: their launches are recorded.
"""

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from workers.edits.fix import SelectedEdits
from workers.edits.functions import MODULE, edits_of, functions_of, is_docstring, name_of
from workers.targets.child.inside import edited_modules
from workers.targets.child.inside.overlay import Overlay

# The bytes are stored in builtins: a function can have globals other than its module's, but the builtins are shared.
_NOTES = "__specstorm_notes__"
# Given a file's path and source: the functions to record, with the number of blocks of each.
Selection: TypeAlias = Callable[[str, bytes], Mapping[str, int]]


class Notes:
    """Import hook that inserts a recording statement into functions of a package.

    `selected` maps each function of a file that is to be recorded to the number of its blocks that are; a module
    without such functions is left unchanged. With `once`, a function that was reported is not reported again.
    """

    def __init__(self, package: str, selected: Selection, once: bool = False) -> None:
        self._package, self._selected, self._once = package, selected, once
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._ran = bytearray()
        self._reported: set[int] = set()

    def install(self) -> None:
        """Put this import hook before all others; call it before the package is imported."""
        loaded = [name for name in sys.modules if name.partition(".")[0] == self._package]
        assert not loaded, f"{loaded[0]} was loaded before"
        setattr(builtins, _NOTES, self._ran)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module, with a loader that inserts the recording statements."""
        if name.partition(".")[0] != self._package:
            return None
        spec = edited_modules.next_spec(self, name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            selected = self._selected(_file_of(spec), Path(spec.loader.path).read_bytes())
            if selected:
                spec.loader = _Noting(spec.loader, self, _file_of(spec), selected)
        return spec

    def insert_notes(self, tree: ast.Module, source: bytes, file: str, selected: Mapping[str, int]) -> None:
        """Insert a statement at the start of each selected block that marks the block as run."""
        for name, function in functions_of(source, tree).items():
            for number, block in [*enumerate(function.blocks)][: selected.get(name, 0)]:
                at = self._number_of(_block_name(file, name, number))
                if not function.compiled_by:
                    _insert(block, at)

    def loaded(self, file: str) -> None:
        """Record that a module was imported, so that its top-level statements have run."""
        self._ran[self._number_of(name_of(file, MODULE))] = 1

    def launched(self, names: Iterable[str]) -> None:
        """Record a kernel launch, so that the kernel's functions have run.

        `names` are the functions' names with their modules, as `package.module.function`.
        """
        for name in names:
            module, _, function = name.rpartition(".")
            number = self._numbers.get(name_of(f"{module.replace('.', '/')}.py", function))
            if number is not None:
                self._ran[number] = 1

    def ran(self) -> list[str]:
        """Return the names of the functions and blocks that have run since the last call."""
        numbers = [number for number, has_run in enumerate(self._ran) if has_run and number not in self._reported]
        # A function that sets its byte again before the reset is part of this answer already.
        for number in numbers:
            self._ran[number] = 0
        if self._once:
            self._reported.update(numbers)
        return [self._names[number] for number in numbers]

    def _number_of(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
            self._ran.append(0)
        return number


def _file_of(spec: ModuleSpec) -> str:
    """Return the path of a module's file relative to the package's parent folder."""
    folders = spec.name.replace(".", "/")
    return f"{folders}/__init__.py" if spec.submodule_search_locations is not None else f"{folders}.py"


def _block_name(file: str, function: str, number: int) -> str:
    return name_of(file, f"{function}:{number}" if number else function)


def _insert(block: list[ast.stmt], number: int) -> None:
    at = 1 if is_docstring(block[0]) else 0
    (note,) = ast.parse(f"{_NOTES}[{number}] = 1").body
    near = block[min(at, len(block) - 1)]
    for node in ast.walk(note):
        ast.copy_location(node, near)
    block.insert(at, note)


class _Noting(SourceFileLoader):
    """Loader of a module with recording statements; it writes no byte code to disk."""

    def __init__(self, loader: SourceFileLoader, notes: Notes, file: str, selected: Mapping[str, int]) -> None:
        super().__init__(loader.name, loader.path)
        self._loader, self._notes, self._file, self._selected = loader, notes, file, selected

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        tree = self._loader.tree() if isinstance(self._loader, edited_modules.Loader) else ast.parse(source, path)
        self._notes.insert_notes(tree, source, self._file, self._selected)
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: Any) -> None:
        if MODULE in self._selected:
            self._notes.loaded(self._file)
        super().exec_module(module)


def notes_of_process() -> Notes | None:
    """Return the installed `Notes` of this process, or None."""
    return next((finder for finder in sys.meta_path if isinstance(finder, Notes)), None)


def all_functions_of(file: str, source: bytes) -> Mapping[str, int]:
    """Return every function of a source file, with its number of blocks."""
    return {MODULE: 1, **{name: len(function.blocks) for name, function in functions_of(source).items()}}


def note_edits(package: str, fixes: SelectedEdits) -> None:
    """Record runs of the functions that an overlay or a fix changes, if there are any.

    No module of the package may be imported yet. An edit outside all functions is recorded as `MODULE`.
    """
    overlays = [finder for finder in sys.meta_path if isinstance(finder, Overlay)]
    installed = [folder for overlay in overlays for folder in overlay.installed]

    def selected(file: str, source: bytes) -> Mapping[str, int]:
        names = _changed_functions(file, source, installed) if overlays else set()
        edits = fixes.by_module.get(_module_of(file), ())
        functions = functions_of(source) if edits else {}
        return dict.fromkeys(names | {edit.function if edit.function in functions else MODULE for edit in edits}, 1)

    if overlays or fixes.by_module:
        Notes(package, selected, once=True).install()


def _module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _changed_functions(file: str, source: bytes, folders: Sequence[str]) -> set[str]:
    """Return the functions of an overlaid file that differ from the installed file."""
    inner = file.partition("/")[2]
    before = next((path.read_bytes() for folder in folders if (path := Path(folder, inner)).is_file()), None)
    if before == source:
        return set()
    text = before.decode(errors="replace") if before is not None else None
    return {edit.function for edit in edits_of(file, text, source.decode(errors="replace"))}
