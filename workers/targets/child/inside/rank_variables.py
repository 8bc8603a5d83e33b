"""Module variables of an engine's package, of which each rank has its own value: each is a process in production.

A variable that functions of a loaded module assign, and that no table assigns to ranks, is refused by name: otherwise
ranks would share it without notice.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from workers.targets.child.inside.replacements import Version

# Where a `global` statement may begin: most files with the word have it in a text only, and are not parsed.
_STATEMENT = re.compile(r"(?:^|[;:])[ \t]*global[ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RankVariables:
    """Tables of a package's module variables, by module name.

    Ranks have their own values of `own`, and share the values of `shared`. The simulated device uses no function of the
    modules `unused`.
    """

    package: str
    own: Mapping[str, Sequence[str]]
    shared: Mapping[str, Sequence[str]]
    unused: Sequence[str]

    def own_variables(self) -> list[tuple[ModuleType, str]]:
        """Return the module and the name of each variable of which ranks have their own values."""
        return [(importlib.import_module(module), name) for module, names in self.own.items() for name in names]

    def check(self, version: Version) -> None:
        """Check that each variable that a loaded module of the package assigns in a function is in a table.

        Raises:
            Unknown: one is in neither table.
        """
        names = (name for name in sys.modules if name.startswith(f"{self.package}.") and name not in self.unused)
        for module in sorted(names):
            file = getattr(sys.modules[module], "__file__", None)
            known = (*self.own.get(module, ()), *self.shared.get(module, ()))
            for name in assigned_in_functions(Path(file)) if file is not None else ():
                if name not in known:
                    raise version.lacks(f"rule for ranks about the variable {module}.{name}")


@cache
def assigned_in_functions(file: Path) -> tuple[str, ...]:
    """Return the module variables that functions of a source file assign, by their `global` statements."""
    if file.suffix != ".py":
        return ()
    text = file.read_text()
    return tuple(sorted(set(_globals_of(ast.parse(text))))) if _STATEMENT.search(text) else ()


def _globals_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
