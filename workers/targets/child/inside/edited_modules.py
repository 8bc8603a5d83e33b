"""Import hook that applies source edits to an engine's modules; no line number changes."""

import ast
import linecache
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, ModuleType

from workers.edits.edit import Edit, apply_replacements, edited_tree
from workers.edits.fix import SelectedEdits, fixes_of, select_edits, select_fixes


def install(package: str, names: str, overlays: Sequence[Path]) -> SelectedEdits:
    """Install the import hook that applies fixes of findings; return the edits by module.

    A fix is applied if it matches the sources. `names` is `all`, comma-separated names of findings, or empty.
    `overlays` are source trees over the installed package, in order of precedence.
    """
    fixes = select_fixes(fixes_of(package), names)
    spec = PathFinder.find_spec(package)
    assert spec is not None, f"{package} is installed"
    roots = [Path(folder).parent for folder in spec.submodule_search_locations or ()]
    found = select_edits(fixes, [*overlays, *roots])
    if found.by_module:
        sys.meta_path.insert(0, EditedModules(found.by_module))
    return found


def next_spec(finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    """Return the module spec found by the finders after `finder` in `sys.meta_path`, or None."""
    later = sys.meta_path[next(at for at, each in enumerate(sys.meta_path) if each is finder) + 1 :]
    specs = (each.find_spec(name, path, target) for each in later if hasattr(each, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


class EditedModules(MetaPathFinder):
    """Import finder of the modules that have edits, by module name.

    The finders after it locate the source of a module.
    """

    def __init__(self, by_module: Mapping[str, Sequence[Edit]]) -> None:
        self._by_module = by_module

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._by_module:
            return None
        spec = next_spec(self, name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(name, spec.loader.path, self._by_module[name])
        return spec


class Loader(SourceFileLoader):
    """Loader that compiles one module from its edited source."""

    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Compile the edited source; never use cached byte code of the original.

        Raises:
            EditError: an edit does not match.
        """
        return compile(self.tree(), self.path, "exec", dont_inherit=True)

    def tree(self) -> ast.Module:
        """Return the module's syntax tree with all edits applied.

        Raises:
            EditError: an edit does not match.
        """
        source = decode_source(self.get_data(self.path))
        # Triton's interpreter and `inspect` read the source text of a function; edits change no line numbers.
        text = apply_replacements(source, self._edits)
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)
        return edited_tree(source, self._edits)
