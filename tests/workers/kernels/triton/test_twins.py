"""Every device op's Triton twin writes what its definition says, in every case, and nothing outside its buffers."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.kernels.triton.launches import Guarded
from tests.workers.kernels.twins import FOLDERS, Op, assert_as_defined, cases_of, memory_of, op_name, op_of, run
from workers.kernels.argument import Arguments


def launch(twin: Op, case: Arguments) -> dict[str, NDArray[Any]]:
    """Launch a Triton op on slices of larger memory and return what it left in all its buffers."""
    made = {name: Guarded(array) for name, array in memory_of(case).items()}
    twin(case.on({name: guarded.tensor for name, guarded in made.items()}))
    return {name: guarded.read() for name, guarded in made.items()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_triton_twin_writes_what_is_defined_and_nothing_else(folder: str) -> None:
    cases = list(cases_of(folder))
    assert cases
    for case in cases:
        name = op_name(type(case))
        expected = run(op_of(folder, "definition", name), case)
        found = launch(op_of(folder, "triton", name), case)
        assert_as_defined(folder, case, found, expected)
        for each, mode in case.modes().items():
            if mode == "in":
                np.testing.assert_array_equal(found[each], getattr(case, each), f"the input {each} was written")
