"""Count structural properties of a checkout: folders, imports, assertions, sizes.

Reads the source with `ast` without importing it, so that it can count any checkout, also of another commit.

Counted: - loose modules: files directly in `workers/` and `cluster/`, except `__init__.py`; - backward imports: folders
that import one another, in a cycle of any length. A module belongs to its package's direct subfolder
(`workers.engine`), a loose one to the package itself; every import counts, also inside functions and for types. Counted
again with every nested folder on its own; - untyped parts: entries of `Parts` with an annotation that leaves the
arguments open: `Callable[..., X]`, `Any`, `object`, or an alias of one of them; - long positional launches: calls of a
function named `launch` with ten or more positional arguments after the launched op; a starred argument counts as one; -
device parameters: parameters named `device` of functions, methods and constructors, and fields of dataclasses; not in
foreign engines, where a device is PyTorch's; - state changes without an assertion: see
`benchmarks/structure/state_changes.py`; in the engine, its pools, dispatch and storage. Methods must assert; functions
outside classes are reported for comparison; - passing of a trace: modules through which a trace is passed from
`Worker.judge` on, and moves of it to a higher module, including returns: see `benchmarks/structure/passage.py`. The
goal is half of the first counts (46, 100); - parameters of device ops listed again: see
`benchmarks/structure/signatures.py`. The goal is a quarter of the first count (914); - assertions per function, and
files and functions within a tenth of their length limits.

Does not count: calls by a name that is computed at run time, or through a protocol.
"""

import ast
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.structure.passage import climbs, passage
from benchmarks.structure.signatures import repeated
from benchmarks.structure.state_changes import FUNCTION, chain_of, unasserted_changes

ROOMS = ("scenarios", "workers", "cluster")
ROOMS_WITH_FOLDERS = ("workers", "cluster")
POSITIONAL_MAX = 9
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
NEAR = 0.9

LEAVES_ARGUMENTS_OPEN = {"Any", "object"}


@dataclass(frozen=True, slots=True)
class Module:
    """A source file and its syntax tree."""

    name: str
    tree: ast.Module
    num_lines: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured number, the source locations it counts, and its maximum, if it has one."""

    name: str
    count: float
    count_max: float | None = None
    places: tuple[str, ...] = ()


def modules_of(root: Path, rooms: Sequence[str] = ROOMS) -> list[Module]:
    """Read every module of the packages of a checkout.

    Raises:
        FileNotFoundError: the folder contains none of the packages.
    """
    modules = []
    for path in sorted(path for room in rooms for path in (root / room).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(name, ast.parse(text, str(path)), len(text.splitlines())))
    if not modules:
        raise FileNotFoundError(f"{root}: no Python files in {', '.join(rooms)}; name the root of a checkout")
    return modules


def loose_modules(root: Path) -> list[str]:
    """Return the files directly in a package that has subfolders."""
    return sorted(
        f"{room}/{path.name}"
        for room in ROOMS_WITH_FOLDERS
        for path in (root / room).glob("*.py")
        if path.name != "__init__.py"
    )


def imports_of(module: Module, known: set[str]) -> Iterator[str]:
    """Yield the modules of the checkout that a module imports, at any level."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in known)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                full = [f"{source}.{alias.name}" for alias in names]
                yield from {name if name in known else source for name in full if name in known or source in known}


def package_folder_of(module: str, packages: set[str]) -> str:
    """Return the folder of a module, at most two names deep."""
    two = ".".join(module.split(".")[:2])
    return two if two in packages else two.split(".")[0]


def own_folder_of(module: str, packages: set[str]) -> str:
    """Return the folder that directly contains a module."""
    return module if module in packages else module.rpartition(".")[0]


def folder_imports(modules: Sequence[Module], folder_of: Callable[[str, set[str]], str]) -> dict[str, set[str]]:
    """Return for each folder the folders that it imports from."""
    known = {module.name for module in modules}
    packages = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    found: dict[str, set[str]] = {}
    for module in modules:
        folder = folder_of(module.name, packages)
        targets = {folder_of(name, packages) for name in imports_of(module, known)}
        found.setdefault(folder, set()).update(targets - {folder})
    return found


def reached_from(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Return every folder that a folder imports from, directly or indirectly."""
    found: set[str] = set()
    to_read = [start]
    while to_read:
        for each in edges.get(to_read.pop(), set()) - found:
            found.add(each)
            to_read.append(each)
    return found


def cycles(edges: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of more than one folder."""
    reach = {folder: reached_from(folder, edges) for folder in edges}
    found = {tuple(sorted(other for other in reach[folder] if folder in reach[other])) for folder in reach}
    return sorted(cycle for cycle in found if len(cycle) > 1)


def pairs(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the pairs of folders that import each other."""
    return sorted(f"{a} <-> {b}" for a in edges for b in edges[a] if a < b and a in edges.get(b, set()))


def open_names(modules: Sequence[Module]) -> set[str]:
    """Return the aliases of types that leave the arguments of a function open."""
    names = set(LEAVES_ARGUMENTS_OPEN)
    for module in modules:
        for node in module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if leaves_open(value, names):
                    names.add(name)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if leaves_open(value, names):
                    names.add(name)
    return names


def leaves_open(annotation: ast.expr, names: set[str]) -> bool:
    """Return whether an annotation leaves a function's arguments open."""
    match annotation:
        case ast.Name(id=name):
            return name in names
        case ast.Subscript(value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[first, _])):
            return isinstance(first, ast.Constant) and first.value is Ellipsis
    return False


def untyped_parts(modules: Sequence[Module]) -> list[str]:
    """Return the ops in the class `Parts` with a type that leaves arguments open."""
    names = open_names(modules)
    return [
        f"{module.name}.Parts.{entry.target.id}"
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Parts"
        for entry in node.body
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
        if leaves_open(entry.annotation, names)
    ]


def long_launches(modules: Sequence[Module]) -> list[str]:
    """Return the calls of a `launch` with too many positional arguments for a reader."""
    return [
        f"{module.name}:{node.lineno} {len(node.args) - 1} arguments"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        if (chain_of(node.func) or [""])[-1].strip("_") == "launch"
        if len(node.args) > 1 + POSITIONAL_MAX
    ]


# In these modules a device is PyTorch's, and not the device of a run.
FOREIGN = ("workers.simulated_torch.", "workers.targets.child.", "workers.targets.vllm.")


def device_parameters(modules: Sequence[Module]) -> list[str]:
    """Return the functions and classes with a parameter or a field named `device`."""
    found = []
    for module in modules:
        if module.name.startswith(FOREIGN):
            continue
        for node in ast.walk(module.tree):
            match node:
                case ast.FunctionDef(name=name, args=given) | ast.AsyncFunctionDef(name=name, args=given):
                    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                case ast.ClassDef(name=name, body=body):
                    fields = [each.target for each in body if isinstance(each, ast.AnnAssign)]
                    names = [field.id for field in fields if isinstance(field, ast.Name)]
                case _:
                    continue
            found += [f"{module.name}.{name}"] * names.count("device")
    return found


def sizes(modules: Sequence[Module]) -> Iterator[Measure]:
    """Yield the numbers and lengths of functions and files, and the numbers of assertions."""
    functions = [
        (module.name, node) for module in modules for node in ast.walk(module.tree) if isinstance(node, FUNCTION)
    ]
    num_asserts = sum(isinstance(node, ast.Assert) for module in modules for node in ast.walk(module.tree))
    lengths = {f"{name}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1 for name, node in functions}
    long = [f"{name} {length}" for name, length in lengths.items() if length > NEAR * FUNCTION_LINES_MAX]
    files = [f"{module.name} {module.num_lines}" for module in modules if module.num_lines > NEAR * FILE_LINES_MAX]
    yield Measure("files", len(modules))
    yield Measure("functions", len(functions))
    yield Measure("assertions", num_asserts)
    yield Measure("assertions a function", round(num_asserts / max(1, len(functions)), 3))
    yield Measure(f"functions of more than {NEAR * FUNCTION_LINES_MAX:.0f} lines", len(long), None, tuple(long))
    yield Measure(f"files of more than {NEAR * FILE_LINES_MAX:.0f} lines", len(files), None, tuple(files))


def measures(root: Path) -> list[Measure]:
    """Return the structural measures of a checkout: import cycles, sizes, assertions ..."""
    modules = modules_of(root)
    near, nested = folder_imports(modules, package_folder_of), folder_imports(modules, own_folder_of)
    trees = {module.name: module.tree for module in modules}
    methods, functions = unasserted_changes(trees)
    known, entered = set(trees), passage(trees)
    imported = {module.name: sorted(imports_of(module, known)) for module in modules}

    def of(name: str, places: Sequence[str], count_max: float | None = None) -> Measure:
        return Measure(name, len(places), count_max, tuple(places))

    return [
        of("modules directly in workers/ and cluster/", loose_modules(root), 2),
        of("package folders in an import cycle", sorted({each for cycle in cycles(near) for each in cycle}), 0),
        of("pairs of package folders that import each other", pairs(near), 0),
        of("nested folders in an import cycle", sorted({each for cycle in cycles(nested) for each in cycle})),
        of("entries of Parts with open arguments", untyped_parts(modules), 0),
        of("launches of 10 or more positional arguments", long_launches(modules), 0),
        of("parameters named device", device_parameters(modules), 9),
        of("methods that change state without an assertion", methods, 0),
        of("functions that change state without an assertion", functions),
        of("modules that pass a trace", sorted(set(entered)), 23),
        of("moves of a trace to a higher module", climbs(entered, imported), 50),
        of("repeated parameters of device ops", repeated(trees), 228),
        *sizes(modules),
    ]


def table(found: Sequence[Measure]) -> str:
    """Return the measures as a table with their maxima."""
    width = max(len(measure.name) for measure in found)
    lines = [f"{'':{width}}  count  maximum"]
    for measure in found:
        wanted = "" if measure.count_max is None else f"<= {measure.count_max:g}" if measure.count_max else "0"
        lines.append(f"{measure.name:{width}}  {measure.count:>5g}  {wanted}".rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Count a checkout, by default this one; `--places` lists locations, `--json` prints both."""
    folders = [argument for argument in arguments if not argument.startswith("--")]
    found = measures(Path(folders[0]) if folders else Path(__file__).resolve().parents[2])
    if "--json" in arguments:
        print(json.dumps([asdict(measure) for measure in found], indent=1))
        return
    print(table(found))
    if "--places" in arguments:
        for measure in found:
            print(f"\n{measure.name}", *measure.places, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
