"""Every device op has a definition; its NumPy twin, if any, runs on `sim` and equals it."""

from importlib import import_module

import pytest

from tests.workers.kernels.twins import FOLDERS, assert_as_defined, cases_of, folders_with, op_name, op_of, ops_of, run
from workers.targets.devices import CLEAN

WITH_TWINS = sorted(folders_with("numpy.py") & {*FOLDERS})


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_op_has_a_definition_and_cases(folder: str) -> None:
    assert {op_name(type(case)) for case in cases_of(folder)} == ops_of(folder)
    for name in ops_of(folder):
        assert callable(op_of(folder, "definition", name))


@pytest.mark.parametrize("folder", FOLDERS)
def test_sim_runs_numpy_twin_or_definition(folder: str) -> None:
    twins = import_module(f"workers.kernels.{folder}.numpy") if folder in WITH_TWINS else None
    names = ops_of(folder)
    assert names
    for name in names:
        assert getattr(CLEAN, name) is getattr(twins, name, op_of(folder, "definition", name))


@pytest.mark.parametrize("folder", WITH_TWINS)
def test_numpy_twin_equals_definition(folder: str) -> None:
    cases = list(cases_of(folder))
    assert cases
    for case in cases:
        name = op_name(type(case))
        expected = run(op_of(folder, "definition", name), case)
        assert_as_defined(folder, case, run(getattr(CLEAN, name), case), expected)
