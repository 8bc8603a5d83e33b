"""Structure measures on synthetic sources, and the limits that the project keeps."""

import textwrap
from pathlib import Path

import pytest

from benchmarks.structure.__main__ import Measure, main, measures

ROOT = Path(__file__).resolve().parents[3]
# Numbers that may not get worse; `python -m benchmarks.structure` prints the other measures too.
HELD = {
    "modules directly in workers/ and cluster/": 2,
    "package folders in an import cycle": 0,
    "pairs of package folders that import each other": 0,
    "entries of Parts with open arguments": 0,
    "launches of 10 or more positional arguments": 0,
    # One is the key of a scenario file.
    "parameters named device": 9,
    "methods that change state without an assertion": 0,
    "nested folders in an import cycle": 2,
    "modules that pass a trace": 23,
    "moves of a trace to a higher module": 50,
    "repeated parameters of device ops": 71,
}


def counted(root: Path) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures(root)}


def checkout(root: Path, **files: str) -> Path:
    """Write a small project; `workers__engine__pool` is the file workers/engine/pool.py."""
    for name, text in files.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    for folder in {parent for path in root.rglob("*.py") for parent in path.parents if parent != root}:
        if folder.is_relative_to(root):
            (folder / "__init__.py").write_text('"""A folder."""\n', encoding="utf-8")
    return root


def test_project_keeps_its_structure_numbers() -> None:
    found = counted(ROOT)
    assert {name: found[name].places for name, wanted in HELD.items() if found[name].count > wanted} == {}


def test_import_cycle_through_a_third_folder_is_found(tmp_path: Path) -> None:
    a, b, c = ("workers.engine.loop", "workers.judge.checker", "workers.record.log")
    root = checkout(
        tmp_path,
        workers__engine__loop=f"from {b} import check\n",
        workers__judge__checker=f"def check():\n    import {c}\n",
        workers__record__log=f"from workers.engine import loop\nimport {a}\n",
        workers__run__one=f"import {a}\n",
    )
    found = counted(root)
    assert found["package folders in an import cycle"].places == (
        "workers.engine",
        "workers.judge",
        "workers.record",
    )
    assert found["pairs of package folders that import each other"].count == 0


def test_nested_folders_are_counted_separately(tmp_path: Path) -> None:
    root = checkout(
        tmp_path,
        workers__engine__loop="import workers.engine.drafters.eagle\n",
        workers__engine__drafters__eagle="import workers.engine.loop\n",
    )
    found = counted(root)
    assert found["package folders in an import cycle"].count == 0
    assert found["nested folders in an import cycle"].count == 2


def test_open_arguments_are_found_through_aliases(tmp_path: Path) -> None:
    root = checkout(
        tmp_path,
        workers__engine__parts="""
            Kernel = Callable[..., None]
            Op = Kernel
            class Parts:
                a: Kernel
                b: Op = f
                c: Callable[..., int]
                d: Callable[[int], None]
                e: Copy
                f: Any
            class Other:
                a: Kernel
            """,
    )
    places = counted(root)["entries of Parts with open arguments"].places
    assert [place[-1] for place in places] == ["a", "b", "c", "f"]


def test_long_launches_and_devices_are_counted(tmp_path: Path) -> None:
    ten = ", ".join(map(str, range(10)))
    root = checkout(
        tmp_path,
        workers__engine__runner=f"""
            lane.launch(op, {ten})
            launch(op, *some, 1, 2, 3, 4, 5, 6, 7, 8)
            launch(op, Copy({ten}))
            """,
        cluster__cli__main="""
            def run(path, device): ...
            def hunt(*, device="sim"): ...
            class Job:
                device: str
                devices: str
            """,
    )
    found = counted(root)
    assert found["launches of 10 or more positional arguments"].places == ("workers.engine.runner:2 10 arguments",)
    assert found["parameters named device"].count == 3


CHANGES = [
    "self.x = 1",
    "self.rows[0] = 1",
    "del self._free[key]",
    "row.num_computed += 1",
    "self._free.append(1)",
    "machine = self._machine; machine.pending -= 1",
    "a, self.x = 1, 2",
    "for self.x in (1, 2): pass",
    "self._db.execute('INSERT INTO jobs VALUES (1)')",
    "path.unlink()",
]
NO_CHANGES = [
    "x = self.x",
    "rows[0] = 1",
    "made.append(1)",
    "self.pool.update(1)",
    "self.log.append(1)",
    "self.probes['stall'] += 1",
    "self._db.execute('SELECT 1')",
    "self.x = 1; assert self.x",
    "self.x = 1; self._states_what_holds()",
]


def one_method(root: Path, body: str) -> Path:
    return checkout(
        root,
        workers__engine__pool=f"""
            class Pool:
                def __init__(self):
                    self.x = 1
                    self.pool = Pool()
                    self._made()
                def _made(self):
                    self.y = 1
                def _states_what_holds(self):
                    for each in self.all:
                        assert each
                def method(self, row, rows, key):
                    {body}
            """,
    )


@pytest.mark.parametrize("body", CHANGES)
def test_state_change_without_assertion_is_found(tmp_path: Path, body: str) -> None:
    places = counted(one_method(tmp_path, body))["methods that change state without an assertion"].places
    assert [place.partition(" ")[0] for place in places] == ["workers.engine.pool.Pool.method"]


@pytest.mark.parametrize("body", NO_CHANGES)
def test_method_that_asserts_or_changes_nothing_is_not_found(tmp_path: Path, body: str) -> None:
    assert counted(one_method(tmp_path, body))["methods that change state without an assertion"].places == ()


def test_passing_of_a_trace_follows_functions_and_objects(
    tmp_path: Path,
) -> None:
    root = checkout(
        tmp_path,
        workers__worker="""
            from workers.check import check
            from workers.other import never, later
            class Worker:
                def judge(self, trace):
                    given = trace.spec
                    never(1)
                    verdict = check(given)
                    return later(verdict)
            """,
        workers__check="""
            from workers.keep import Keeper
            from workers import low
            def check(spec):
                low.read(count=spec.depth)
                return Keeper(1, spec).run()
            """,
        workers__keep="""
            from workers.end import end
            class Keeper:
                def __init__(self, number, spec):
                    self.number, self.spec = number, spec
                    self.kept = spec
                def run(self):
                    return end(self.kept)
                def idle(self):
                    return other(self.number)
            """,
        workers__low="def read(count): return count\n",
        workers__end="def end(spec): return spec\n",
        workers__other="def never(x): return x\ndef later(x): return x\n",
    )
    found = counted(root)
    assert found["modules that pass a trace"].places == (
        "workers.check",
        "workers.end",
        "workers.keep",
        "workers.low",
        "workers.other",
        "workers.worker",
    )
    assert found["moves of a trace to a higher module"].places == (
        "workers.low -> workers.check",
        "workers.end -> workers.keep",
        "workers.keep -> workers.check",
        "workers.check -> workers.worker",
        "workers.other -> workers.worker",
    )


def test_repeated_parameters_exclude_the_longest_list(tmp_path: Path) -> None:
    root = checkout(
        tmp_path,
        workers__engine__parts="class Parts:\n    add_up: object\n    copy: object\n    rule: object\n",
        workers__engine__rules="def rule(a, b, c): return a\n",
        workers__engine__run="launch(parts.add_up, AddUp(x=1, y=2, n=3))\nlane.launch(parts.copy, 1, 2)\n",
        workers__kernels__add="class AddUp:\n    x: int\n    y: int\n    n: int\ndef add_up(a): return a\n",
        workers__kernels__move="def copy(source, target): return source\n",
    )
    assert counted(root)["repeated parameters of device ops"].places == (
        *["add_up: workers.kernels.add"] * 3,
        *["copy: workers.kernels.move"] * 2,
    )


def test_folder_without_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name the root of a checkout"):
        main([str(tmp_path)])
