"""Every Triton twin equals its definition in every case, and writes only its buffers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.kernels.triton.launches import Guarded
from tests.workers.kernels.twins import FOLDERS, Op, assert_as_defined, cases_of, memory_of, op_name, op_of, run
from workers.kernels.argument import Arguments

# Those that loop over a vocabulary take seconds a case under the interpreter: `make test` runs every third of each op.
COSTLY = ("draft_sampling", "logprobs", "process_logits", "residual_mass", "sampler_stats", "verify_drafts")


def launch(twin: Op, case: Arguments) -> dict[str, NDArray[Any]]:
    """Launch a Triton op on slices of larger memory and return the content of all its buffers."""
    made = {name: Guarded(array) for name, array in memory_of(case).items()}
    twin(case.on({name: guarded.tensor for name, guarded in made.items()}))
    return {name: guarded.read() for name, guarded in made.items()}


def check_twins(folder: str, cases: Sequence[Arguments]) -> None:
    """Check that a folder's twins equal their definitions on cases, and read their inputs only."""
    assert cases
    for case in cases:
        name = op_name(type(case))
        expected = run(op_of(folder, "definition", name), case)
        found = launch(op_of(folder, "triton", name), case)
        assert_as_defined(folder, case, found, expected)
        for each, mode in case.modes().items():
            if mode == "in":
                np.testing.assert_array_equal(found[each], getattr(case, each), f"the input {each} was written")


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder not in COSTLY])
def test_triton_twin_equals_definition(folder: str) -> None:
    check_twins(folder, list(cases_of(folder)))


@pytest.mark.parametrize("folder", COSTLY)
def test_looping_triton_twin_equals_definition_in_all_cases(folder: str) -> None:
    check_twins(folder, list(cases_of(folder)))


@pytest.mark.parametrize("folder", COSTLY)
def test_looping_triton_twin_equals_definition_in_some_cases(folder: str) -> None:
    by_op: dict[type[Arguments], list[Arguments]] = defaultdict(list)
    for case in cases_of(folder):
        by_op[type(case)].append(case)
    for cases in by_op.values():
        check_twins(folder, cases[::3])
