"""Structure of a checkout in numbers: folders, arrows between them, typed seams, assertions, sizes.

Reads the source with `ast` and imports nothing of it, so it counts any checkout alike, one of another commit too.

What is counted, and how:
- loose modules: files directly in `workers/` and `cluster/`, `__init__.py` not counted;
- arrows running back: folders that import one another, in a ring of any length. A module belongs to the folder of its
  room that it lies below (`workers.engine`), a loose one to the room itself; every import counts, in functions and for
  types alone too. Once more with every nested folder standing for itself;
- untyped parts: entries of `Parts` whose annotation leaves the arguments open: `Callable[..., X]`, `Any`, `object`, or
  a name that stands for one of them;
- long positional launches: calls of something named `launch` with ten or more positional arguments behind the op that
  is launched; a starred one counts as one;
- device parameters: parameters named `device` of functions and methods, and of constructors: fields of dataclasses; not
  of foreign engines, where a device is PyTorch's;
- changes without an assertion: see `benchmarks/structure/state_changes.py`; in the engine, its pools, dispatch and
  storage. A method has to assert, functions outside classes are told for comparison;
- places of a trace: modules that a trace is handed through from `Worker.judge` on, and moves of it to a module above,
  returns too: see `benchmarks/structure/passage.py`. Wanted is half of what there was before the rooms (46, 100);
- parameters of device ops listed again: see `benchmarks/structure/signatures.py`. Wanted is a quarter of what there was
  (914);
- assertions a function, and what is within a tenth of the limits on the length of files and functions.

Does not count: what is called by a name made at run time, or through a protocol.
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
    """A source file and its tree."""

    name: str
    tree: ast.Module
    num_lines: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A number, the places it counts, and the most that is wanted of it, if anything is."""

    name: str
    count: float
    wanted_max: float | None = None
    places: tuple[str, ...] = ()


def modules_of(root: Path, rooms: Sequence[str] = ROOMS) -> list[Module]:
    """Read every module of the rooms of a checkout.

    Raises:
        FileNotFoundError: the folder holds none of them.
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
    """Return the files directly in a room that has folders."""
    return sorted(
        f"{room}/{path.name}"
        for room in ROOMS_WITH_FOLDERS
        for path in (root / room).glob("*.py")
        if path.name != "__init__.py"
    )


def imports_of(module: Module, known: set[str]) -> Iterator[str]:
    """Yield the modules of the checkout that a module imports, anywhere in it."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in known)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                full = [f"{source}.{alias.name}" for alias in names]
                yield from {name if name in known else source for name in full if name in known or source in known}


def room_folder_of(module: str, packages: set[str]) -> str:
    """Return the folder of its room that a module lies in: at most two names deep."""
    two = ".".join(module.split(".")[:2])
    return two if two in packages else two.split(".")[0]


def own_folder_of(module: str, packages: set[str]) -> str:
    """Return the folder that a module lies in."""
    return module if module in packages else module.rpartition(".")[0]


def arrows(modules: Sequence[Module], folder_of: Callable[[str, set[str]], str]) -> dict[str, set[str]]:
    """Return which folders each folder imports from."""
    known = {module.name for module in modules}
    packages = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    found: dict[str, set[str]] = {}
    for module in modules:
        folder = folder_of(module.name, packages)
        targets = {folder_of(name, packages) for name in imports_of(module, known)}
        found.setdefault(folder, set()).update(targets - {folder})
    return found


def reached_from(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Return every folder that arrows lead to from one."""
    found: set[str] = set()
    to_read = [start]
    while to_read:
        for each in edges.get(to_read.pop(), set()) - found:
            found.add(each)
            to_read.append(each)
    return found


def rings(edges: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of more than one folder."""
    reach = {folder: reached_from(folder, edges) for folder in edges}
    found = {tuple(sorted(other for other in reach[folder] if folder in reach[other])) for folder in reach}
    return sorted(ring for ring in found if len(ring) > 1)


def pairs(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the pairs of folders that import each other."""
    return sorted(f"{a} <-> {b}" for a in edges for b in edges[a] if a < b and a in edges.get(b, set()))


def open_names(modules: Sequence[Module]) -> set[str]:
    """Return the names that stand for a type that leaves the arguments of a function open."""
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
    """Tell whether an annotation says nothing of a function's arguments."""
    match annotation:
        case ast.Name(id=name):
            return name in names
        case ast.Subscript(value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[first, _])):
            return isinstance(first, ast.Constant) and first.value is Ellipsis
    return False


def untyped_parts(modules: Sequence[Module]) -> list[str]:
    """Return the entries of `Parts` whose arguments are open."""
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
    """Return the calls of a `launch` with more positional arguments than a reader can tell apart."""
    return [
        f"{module.name}:{node.lineno} {len(node.args) - 1} arguments"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        if (chain_of(node.func) or [""])[-1].strip("_") == "launch"
        if len(node.args) > 1 + POSITIONAL_MAX
    ]


# Where a device is PyTorch's, not the one that a run is asked for.
FOREIGN = ("workers.simulated_torch.", "workers.targets.child.", "workers.targets.vllm.")


def device_parameters(modules: Sequence[Module]) -> list[str]:
    """Return the functions and classes that have a parameter or a field named `device`."""
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
    """Yield how many functions and files there are, how long, and how much they assert."""
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
    """Count a checkout."""
    modules = modules_of(root)
    near, nested = arrows(modules, room_folder_of), arrows(modules, own_folder_of)
    trees = {module.name: module.tree for module in modules}
    methods, functions = unasserted_changes(trees)
    known, entered = set(trees), passage(trees)
    imported = {module.name: sorted(imports_of(module, known)) for module in modules}

    def of(name: str, places: Sequence[str], wanted_max: float | None = None) -> Measure:
        return Measure(name, len(places), wanted_max, tuple(places))

    return [
        of("modules directly in workers/ and cluster/", loose_modules(root), 2),
        of("folders of a room with an arrow running back", sorted({each for ring in rings(near) for each in ring}), 0),
        of("pairs of such folders that import each other", pairs(near), 0),
        of("nested folders with an arrow running back", sorted({each for ring in rings(nested) for each in ring})),
        of("entries of Parts with open arguments", untyped_parts(modules), 0),
        of("launches of 10 or more positional arguments", long_launches(modules), 0),
        of("parameters named device", device_parameters(modules), 9),
        of("methods that change state without an assertion", methods, 0),
        of("functions that change state without an assertion", functions),
        of("modules that a trace is handed through", sorted(set(entered)), 23),
        of("moves of a trace to a module above", climbs(entered, imported), 50),
        of("parameters of device ops that are listed again", repeated(trees), 228),
        *sizes(modules),
    ]


def table(found: Sequence[Measure]) -> str:
    """Lay the numbers out, with what is wanted of each."""
    width = max(len(measure.name) for measure in found)
    lines = [f"{'':{width}}  count  wanted"]
    for measure in found:
        wanted = "" if measure.wanted_max is None else f"<= {measure.wanted_max:g}" if measure.wanted_max else "0"
        lines.append(f"{measure.name:{width}}  {measure.count:>5g}  {wanted}".rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Count a checkout, by default this one; `--places` lists what was counted, `--json` prints both."""
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
