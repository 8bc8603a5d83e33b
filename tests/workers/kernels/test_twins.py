"""Every device op has a definition, and its vectorised twin writes what the definition says, in every case."""

import pytest

from tests.workers.kernels.twins import FOLDERS, assert_as_defined, cases_of, op_name, op_of, ops_of, run


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_op_of_a_folder_has_a_definition_two_twins_and_cases(folder: str) -> None:
    assert {op_name(type(case)) for case in cases_of(folder)} == ops_of(folder)
    for name in ops_of(folder):
        assert callable(op_of(folder, "definition", name))
        assert callable(op_of(folder, "vectorised", name))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_vectorised_twin_writes_what_is_defined_and_nothing_else(folder: str) -> None:
    for case in cases_of(folder):
        name = op_name(type(case))
        expected = run(op_of(folder, "definition", name), case)
        assert_as_defined(folder, case, run(op_of(folder, "vectorised", name), case), expected)
