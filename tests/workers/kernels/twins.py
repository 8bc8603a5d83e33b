"""Cases on which twins of device ops are compared, and the results of the definitions.

A module of cases has `cases()`, which yields arguments of the ops of one folder, on arrays. It may give a tolerance for
a twin's floats (`TOLERANCE`, by argument), and the elements of a buffer that must not be read (`undefined(arguments)`,
indexes by argument): a twin may leave any value there.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import isclass
from pathlib import Path
from re import sub
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers import kernels
from workers.kernels.argument import Arguments

Array = NDArray[Any]
Op = Callable[[Any], None]


def folders_with(file: str) -> set[str]:
    """Return the folders of device ops that have a file with this name."""
    return {path.parent.name for path in Path(kernels.__path__[0]).glob(f"*/{file}")}


def op_name(arguments: type[Arguments]) -> str:
    """Return the name of the op that takes arguments of a class."""
    return sub(r"(?<!^)(?=[A-Z])", "_", arguments.__name__).lower()


def ops_of(folder: str) -> set[str]:
    """Return the names of a folder's ops."""
    module = import_module(f"workers.kernels.{folder}.definition")
    declared = [each for each in vars(module).values() if isclass(each) and each.__module__ == module.__name__]
    return {op_name(each) for each in declared if issubclass(each, Arguments)}


FOLDERS = sorted(folder for folder in folders_with("definition.py") if ops_of(folder))


def op_of(folder: str, module: str, name: str) -> Op:
    """Return an op from `definition` or `triton`."""
    op: Op = getattr(import_module(f"workers.kernels.{folder}.{module}"), name)
    return op


class Declared(NamedTuple):
    """A buffer with the properties that a declaration contains."""

    name: str
    dtype: str
    size: int

    @property
    def described(self) -> tuple[str, str, int]:
        """Return the properties of a span that argument checks use."""
        return self


def cases_of(folder: str) -> Iterator[Arguments]:
    """Yield the cases of a folder's ops, after a check against the ops' declarations."""
    for case in import_module(f"tests.workers.kernels.cases.{folder}").cases():
        arrays = memory_of(case)
        declared = case.on({name: Declared(name, str(array.dtype), len(array)) for name, array in arrays.items()})
        declared.check(declared.values())
        assert all(type(getattr(case, name)) is int for name in case.modes() if name not in arrays)
        yield case


def memory_of(case: Arguments) -> dict[str, Array]:
    """Return copies of a case's buffers."""
    return {name: getattr(case, name).copy() for name, mode in case.modes().items() if mode != "int"}


def run(op: Op, case: Arguments) -> dict[str, Array]:
    """Run an op on copies with read-only inputs, and return its outputs."""
    memory = memory_of(case)
    for name, mode in case.modes().items():
        if mode == "in":
            memory[name].flags.writeable = False
    op(case.on(memory))
    return {name: memory[name] for name, mode in case.modes().items() if mode in ("out", "inout")}


def assert_as_defined(folder: str, case: Arguments, found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Check that a twin's buffers equal the definition's, to the bit unless the cases differ."""
    module = import_module(f"tests.workers.kernels.cases.{folder}")
    tolerance: Mapping[str, float] = getattr(module, "TOLERANCE", {})
    undefined = module.undefined(case) if hasattr(module, "undefined") else {}
    for name, wanted in expected.items():
        is_defined = np.ones(len(wanted), dtype=bool)
        is_defined[undefined.get(name, [])] = False
        is_same = which_agree(found[name], wanted, tolerance.get(name, 0.0))
        wrong = np.flatnonzero(is_defined & ~is_same)
        assert not len(wrong), (
            f"{op_name(type(case))}: {name}{wrong[:5].tolist()} is {found[name][wrong[:5]]}, not {wanted[wrong[:5]]}"
        )


def which_agree(found: Array, wanted: Array, tolerance: float) -> NDArray[np.bool_]:
    """Return which elements are equal: to the bit, both NaN, or within the tolerance."""
    assert found.dtype == wanted.dtype
    word = np.dtype(f"u{wanted.itemsize}")
    is_same: NDArray[np.bool_] = found.view(word) == wanted.view(word)
    if wanted.dtype.kind == "f":
        is_same |= np.isnan(found) & np.isnan(wanted)
        if tolerance:
            is_same |= np.isclose(found, wanted, rtol=0, atol=tolerance)
    return is_same
