"""Dependencies between packages, read from the source.

Verifies: allowed imports, in modules and in functions; where Ray, torch and Triton may be imported; that kernels,
oracle and worker load none of them; that a Triton kernel never waits or allocates and has one order of reduction;
sizes; that an `__init__.py` contains no code; that every package is in the distribution. Does not verify: imports by
name at run time.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("cluster", "workers", "scenarios")
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
KERNEL_LINES_MAX = 120
MODEL_LINES_MAX = 100

# Modules that both implementations of lanes build on; they do not import each other.
LANES_IN_COMMON = (
    "workers.lanes.lane",
    "workers.lanes.base",
    "workers.lanes.policies",
    "workers.lanes.prepared",
)
# Modules loaded inside an engine's own process: no judge, and no module of our engine.
MESSAGES = tuple(f"workers.targets.child.{name}" for name in ("answers", "messages", "weights"))
SHARED_WITH_VLLM = tuple(
    f"workers.targets.vllm.{name}" for name in ("engine_sizes", "names", "request_features", "sources")
)
INSIDE = ("scenarios", "workers.edits", "workers.simulated_torch", "workers.targets.child.inside", *MESSAGES)
# The most specific prefix of a module's name decides which modules of the project it may import.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "scenarios": ("scenarios",),
    "workers.record": ("scenarios", "workers.record"),
    # Edits of an engine's sources are text and syntax trees: they know no engine.
    "workers.edits": ("scenarios", "workers.edits"),
    "workers.kernels": ("workers.kernels",),
    "workers.lanes": ("scenarios.draw", "workers.lanes"),
    "workers.lanes.simulated": (*LANES_IN_COMMON, "workers.lanes.simulated"),
    "workers.lanes.cuda": ("scenarios.draw", *LANES_IN_COMMON, "workers.lanes.cuda"),
    # A device for any PyTorch program: it knows no engine.
    "workers.simulated_torch": ("scenarios.draw", "scenarios.events", "workers.simulated_torch"),
    "workers.engine": ("scenarios", "workers.record", "workers.kernels", "workers.lanes.lane", "workers.engine"),
    "workers.faults": (
        "scenarios",
        "workers.record",
        "workers.kernels",
        "workers.lanes.lane",
        "workers.engine",
        "workers.faults",
    ),
    "workers.targets": (
        "scenarios",
        "workers.edits",
        "workers.record",
        "workers.kernels",
        "workers.lanes",
        "workers.simulated_torch",
        "workers.engine",
        "workers.faults",
        "workers.targets",
    ),
    "workers.targets.child.inside": INSIDE,
    "workers.targets.vllm.inside": (*INSIDE, "workers.targets.vllm.inside", *SHARED_WITH_VLLM),
    "workers.targets.sglang.inside": (*INSIDE, "workers.targets.sglang"),
    # Code that is copied into files for people without this project.
    "workers.targets.child.export.driver": (),
    "workers.targets.vllm.export.driver": (),
    "workers.targets.sglang.export.driver": (),
    # Judges of an engine in another process import no engine.
    "workers.targets.child": (
        "scenarios",
        "workers.edits",
        "workers.record",
        "workers.targets.target",
        "workers.targets.child",
    ),
    "workers.oracle": ("scenarios", "workers.record", "workers.oracle"),
    "workers.judge": ("scenarios", "workers.record", "workers.lanes.lane", "workers.oracle", "workers.judge"),
    # Contracts depend on a request only: they import neither the model nor engine code.
    "workers.judge.contracts": ("scenarios", "workers.record", "workers.judge.judge", "workers.judge.contracts"),
    "workers.shrink": ("scenarios", "workers.record", "workers.shrink"),
    "workers.run": ("scenarios", "workers"),
    "cluster.dispatch": ("scenarios", "workers", "cluster.dispatch"),
    "cluster.storage": ("scenarios", "workers", "cluster.dispatch", "cluster.storage"),
    "cluster.statistics": ("scenarios", "workers", "cluster.dispatch", "cluster.storage", "cluster.statistics"),
    "cluster.campaigns": (
        "scenarios",
        "workers",
        "cluster.dispatch",
        "cluster.storage",
        "cluster.statistics",
        "cluster.campaigns",
    ),
    "cluster.reports": (
        "scenarios",
        "workers",
        "cluster.dispatch",
        "cluster.storage",
        "cluster.statistics",
        "cluster.campaigns",
        "cluster.reports",
    ),
    "cluster.cli": ("scenarios", "workers", "cluster"),
    "cluster.__main__": ("cluster.cli",),
}
# Files directly in a package that has subfolders.
LOOSE = {"workers": {"__init__.py"}, "cluster": {"__init__.py", "__main__.py"}}
MAY_IMPORT_RAY = ("cluster.dispatch", "tests.cluster")
# An op's Triton twin, and code that Triton twins share, are in the op's folder.
TRITON_FILES = re.compile(r"workers\.kernels\.\w+\.triton")
_INSIDE_OF_ENGINES = tuple(room for room in MAY_IMPORT if room.endswith((".inside", ".export.driver")))
LOADING_TORCH = ("workers.simulated_torch", *_INSIDE_OF_ENGINES)
MAY_IMPORT_TRITON = (
    "workers.lanes.cuda",
    *LOADING_TORCH,
    "tests.workers.kernels.triton",
    "tests.workers.lanes.test_cuda",
    "tests.workers.targets.child.layer_checks",
    "tests.workers.targets.child.racer_child",
    "tests.workers.targets.test_devices",
    "tests.workers.simulated_torch",
    "tests.cluster.cli.test_devices",
    "tests.benchmarks",
)
# Calls that make a kernel's result depend on timing or a trial run, or break CUDA graph capture.
NEVER_IN_A_KERNEL = {"autotune", "item", "tolist", "cpu", "synchronize", "empty", "empty_like", "clone", "contiguous"}
NEVER_LOADED_ON_SIM = ("torch", "triton", "ray")
# Devices other than `sim`; they are loaded only when a run uses them.
NOT_ON_SIM = ("workers.lanes.cuda", *LOADING_TORCH)
LOADED_ON_SIM = ("scenarios", "workers")


def is_in(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def files_of(*folders: str) -> list[Path]:
    found = {folder: [*(ROOT / folder).rglob("*.py")] for folder in folders}
    assert [folder for folder, files in found.items() if not files] == [], "a folder of another name is not looked into"
    return sorted(path for files in found.values() for path in files)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(node: ast.AST) -> Iterator[str]:
    """Yield the modules that a statement imports; `from a import b` is a.b if that is a module."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from (f"{module}.{a.name}" if is_module(f"{module}.{a.name}") else module for a in names)
        case ast.ImportFrom():
            yield "a relative import"


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


@cache
def all_imports(path: Path) -> frozenset[str]:
    return frozenset(name for node in ast.walk(tree_of(path)) for name in imports_of(node))


def imports_on_load(tree: ast.AST) -> Iterator[str]:
    """Yield the imports that run when a module is imported, outside functions and type checks."""
    for node in ast.iter_child_nodes(tree):
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not is_for_types:
            yield from imports_of(node)
            yield from imports_on_load(node)


def rule_of(module: str) -> tuple[str, ...]:
    """Return the modules that a module may import."""
    return MAY_IMPORT[max((room for room in MAY_IMPORT if is_in(module, room)), key=len)]


def forbidden_imports(module: str, imported: Iterable[str]) -> list[str]:
    project = [name for name in imported if name.split(".")[0] in (*ROOMS, "tests", "a relative import")]
    return sorted(name for name in project if not any(is_in(name, prefix) for prefix in rule_of(module)))


def test_modules_import_only_allowed_packages() -> None:
    wrong = {
        module_of(path): names
        for path in files_of(*ROOMS)
        if module_of(path) not in ROOMS
        if (names := forbidden_imports(module_of(path), all_imports(path)))
    }
    assert wrong == {}


@pytest.mark.parametrize("room", LOOSE)
def test_packages_have_no_other_modules_outside_folders(room: str) -> None:
    assert {path.name for path in (ROOT / room).glob("*.py")} == LOOSE[room]


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("scenarios.codec", "workers.record.verdict"),
        ("workers.kernels.attention.numpy", "workers.record.model"),
        ("workers.kernels.attention.triton", "scenarios.spec"),
        ("workers.lanes.simulated", "scenarios.spec"),
        ("workers.oracle.state_oracle", "workers.engine.engine"),
        ("workers.oracle.state_oracle", "workers.kernels.arithmetic.numpy"),
        ("workers.oracle.model_values", "workers.kernels.arithmetic.numpy"),
        ("workers.engine.engine", "workers.oracle.state_oracle"),
        ("workers.oracle.anything_new", "workers.judge.checker"),
        ("workers.judge.anything_new", "workers.engine.rules"),
        ("workers.judge.races", "workers.lanes.simulated"),
        ("workers.judge.contracts.tokens", "workers.oracle.derived"),
        ("workers.judge.contracts.logprobs", "workers.judge.checker"),
        ("workers.engine.runner", "workers.lanes.simulated"),
        ("workers.faults.waits", "workers.lanes.prepared"),
        ("workers.lanes.cuda", "workers.lanes.simulated"),
        ("workers.lanes.simulated", "workers.lanes.cuda"),
        ("workers.simulated_torch.device", "workers.targets.child.inside.layers"),
        ("workers.faults.counts", "workers.oracle.model_values"),
        ("workers.faults.counts", "workers.judge.referee"),
        ("workers.targets.devices", "workers.judge.checker"),
        ("workers.targets.vllm.inside.session", "workers.record.observation"),
        ("workers.targets.child.inside.host", "workers.targets.child.process"),
        ("workers.targets.vllm.export.driver.engine", "workers.targets.child.export.text"),
        ("workers.targets.child.target", "workers.targets.vllm.known"),
        ("workers.shrink.shrinker", "workers.run.check"),
        ("cluster.dispatch.host", "cluster.storage.store"),
        ("cluster.storage.store", "cluster.campaigns.hunt.hunt"),
        ("workers.run.check", "cluster.dispatch.job"),
        ("workers.run.check", "tests.cluster"),
        ("cluster.cli.main", "a relative import"),
    ],
)
def test_forbidden_imports_are_detected(module: str, imported: str) -> None:
    assert forbidden_imports(module, {imported, "json"}) == [imported]


def modules_in_a_cycle(imports: Mapping[str, Set[str]]) -> list[str]:
    """Return the modules that import themselves through other modules."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        to_read = [start]
        while to_read:
            new = set(imports.get(to_read.pop(), ())) - found
            found |= new
            to_read += new
        return found

    return sorted(module for module in imports if module in reached(module))


def test_imports_have_no_cycles_even_in_functions() -> None:
    assert modules_in_a_cycle({module_of(path): all_imports(path) for path in files_of(*ROOMS)}) == []


def test_modules_in_a_cycle_are_found() -> None:
    imports = {"tape": {"drafters"}, "drafters": {"draw", "truth"}, "truth": {"tape"}, "draw": set(), "log": {"tape"}}
    assert modules_in_a_cycle(imports) == ["drafters", "tape", "truth"]


def test_tests_import_absolutely() -> None:
    assert [path for path in files_of("tests") if "a relative import" in all_imports(path)] == []


def test_ray_is_imported_by_dispatch_only() -> None:
    users = {module_of(path) for path in files_of(*ROOMS, "tests") if any(is_in(n, "ray") for n in all_imports(path))}
    assert sorted(user for user in users if not any(is_in(user, allowed) for allowed in MAY_IMPORT_RAY)) == []


def test_torch_and_triton_are_imported_by_launching_modules_only() -> None:
    users = {
        module_of(path)
        for path in files_of(*ROOMS, "tests")
        if any(is_in(name, loaded) for name in all_imports(path) for loaded in ("torch", "triton"))
    }
    others = {user for user in users if not TRITON_FILES.fullmatch(user)}
    assert sorted(user for user in others if not any(is_in(user, allowed) for allowed in MAY_IMPORT_TRITON)) == []


def test_triton_ops_never_wait_allocate_or_use_atomics() -> None:
    named = {
        f"{module_of(path)}: {node.attr}"
        for path in files_of("workers/kernels")
        if TRITON_FILES.fullmatch(module_of(path))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        if node.attr in NEVER_IN_A_KERNEL or node.attr.startswith("atomic_")
    }
    assert sorted(named) == []


@cache
def path_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@cache
def loaded_with(path: Path) -> frozenset[str]:
    """Return the modules and packages that importing a file imports directly."""
    names = imports_on_load(tree_of(path))
    return frozenset(name.rsplit(".", n)[0] for name in names for n in range(name.count(".") + 1))


def loaded_by(module: str) -> dict[str, str]:
    """Return every module that importing one loads, each with the module that imports it."""
    found: dict[str, str] = {module: "the test"}
    to_read = [module]
    while to_read:
        reader = to_read.pop()
        path = path_of(reader)
        for name in loaded_with(path) if path else ():
            if name not in found:
                found[name] = reader
                to_read.append(name)
    return found


def test_modules_of_sim_load_no_torch_triton_or_ray() -> None:
    modules = [module_of(path) for path in files_of("workers", "scenarios")]
    starts = [module for module in modules if any(is_in(module, start) for start in LOADED_ON_SIM)]
    wrong = set()
    for start in starts:
        if not TRITON_FILES.fullmatch(start) and not any(is_in(start, device) for device in NOT_ON_SIM):
            loaded = loaded_by(start)
            wrong |= {f"{by} imports {name}" for name, by in loaded.items() if name in NEVER_LOADED_ON_SIM}
    assert sorted(wrong) == []


@pytest.mark.parametrize("room", ["oracle", "judge"])
def test_judges_and_oracle_load_no_engine_code(room: str) -> None:
    judged = ("workers.engine", "workers.kernels", "workers.faults", "workers.targets")
    files = files_of(f"workers/{room}")
    assert files
    for path in files:
        assert [name for name in loaded_by(module_of(path)) if any(is_in(name, prefix) for prefix in judged)] == []


def test_campaigns_load_neither_ray_nor_commands() -> None:
    files = files_of("cluster/campaigns")
    assert files
    for path in files:
        loaded = loaded_by(module_of(path))
        assert [name for name in loaded if is_in(name, "ray") or is_in(name, "cluster.cli")] == []


def test_planners_import_no_pools_and_driver_builds_coordinator() -> None:
    hidden = ("cluster.dispatch.pool", "cluster.dispatch.host", "cluster.dispatch.session", "cluster.campaigns.driver")
    planners = [path for path in files_of("cluster/campaigns") if path.name != "driver.py"]
    assert [path.name for path in planners if any(name in hidden for name in all_imports(path))] == []
    builders = [
        module_of(path)
        for path in files_of(*ROOMS)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Coordinator"
    ]
    assert builders == ["cluster.campaigns.driver"]


def test_files_keep_the_length_limit() -> None:
    lengths = {
        module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files_of(*ROOMS, "tests")
    }
    for path in (ROOT / "workers").rglob("native/*"):
        lengths[str(path.relative_to(ROOT))] = len(path.read_text(encoding="utf-8").splitlines())
    assert {module: length for module, length in lengths.items() if length > FILE_LINES_MAX} == {}
    assert lengths.get("workers.record.model", 0) <= MODEL_LINES_MAX


def test_functions_keep_the_length_limit() -> None:
    long = {}
    for path in files_of(*ROOMS):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                is_kernel = is_in(module_of(path), "workers.kernels")
                if length > (KERNEL_LINES_MAX if is_kernel else FUNCTION_LINES_MAX):
                    long[f"{module_of(path)}.{node.name}"] = length
    assert long == {}


def test_init_files_contain_only_a_docstring() -> None:
    folders = {path.parent for path in files_of(*ROOMS, "tests")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
    for folder in folders:
        tree = tree_of(folder / "__init__.py")
        assert ast.get_docstring(tree), folder
        assert len(tree.body) == 1, folder


def test_distribution_lists_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {module_of(path) for path in files_of(*ROOMS, "findings") if path.name == "__init__.py"}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(packages)
    assert "Private :: Do Not Upload" in project["project"]["classifiers"]
