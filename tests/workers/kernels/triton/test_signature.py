"""Every Triton op declares what its definition declares, and refuses what a kernel would misread."""

from importlib import import_module
from inspect import isfunction, signature
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.workers.kernels.triton.launches import DEVICE
from workers.kernels.triton.kv_write import kv_write
from workers.kernels.triton.signature import check_flat
from workers.lanes.lane import Function
from workers.lanes.prepared import op_of
from workers.targets import devices

FOLDER = Path(__file__).resolve().parents[4] / "workers" / "kernels" / "triton"
WITHOUT_OPS = ("__init__", "arithmetic", "drafting", "launch", "probabilities", "signature")
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in WITHOUT_OPS)


def ops_of(module: str) -> dict[str, Function]:
    """Return the public functions that a module defines, by name."""
    found = vars(import_module(module)).items()
    return {name: each for name, each in found if isfunction(each) and each.__module__ == module and name[0] != "_"}


@pytest.mark.parametrize("module", MODULES)
def test_every_twin_has_the_name_the_parameters_and_the_access_modes_of_its_definition(module: str) -> None:
    twins, definitions = ops_of(f"workers.kernels.triton.{module}"), ops_of(f"workers.kernels.{module}")
    assert twins
    for name, twin in twins.items():
        assert op_of(twin).name == op_of(definitions[name]).name == name
        assert op_of(twin).modes == op_of(definitions[name]).modes
        assert list(signature(twin).parameters) == list(signature(definitions[name]).parameters)


def test_every_device_op_that_an_engine_launches_has_a_twin_and_there_are_no_others() -> None:
    ops = {(op.__module__.rpartition(".")[2], op.__name__) for op in devices.ops_of(devices.CLEAN).values()}
    twins = {(module, name) for module in MODULES for name in ops_of(f"workers.kernels.triton.{module}")}
    assert twins == ops


def test_a_slice_with_a_step_or_a_table_of_two_dimensions_is_refused() -> None:
    words = torch.arange(6, device=DEVICE)
    check_flat(words, words[1:5], words[:0])
    with pytest.raises(ValueError, match=r"flat, contiguous buffers, not shape \(3,\) and strides \(2,\)"):
        check_flat(words, words[::2])
    with pytest.raises(ValueError, match=r"not shape \(2, 3\)"):
        check_flat(words.reshape(2, 3))


def test_an_op_refuses_a_slice_with_a_step_and_writes_nothing() -> None:
    ids, cache = torch.arange(3, device=DEVICE), torch.from_numpy(np.zeros(6, dtype=np.uint64)).to(DEVICE)
    with pytest.raises(ValueError, match="contiguous"):
        kv_write(ids, ids, ids, cache[::2], cache, 0)
    assert not cache.cpu().numpy().any()
