"""Every Triton op takes its definition's arguments, and refuses unsuitable memory layouts."""

from importlib import import_module
from inspect import isfunction, signature

import numpy as np
import pytest
import torch

from tests.workers.kernels.calls import Op
from tests.workers.kernels.triton.launches import DEVICE
from tests.workers.kernels.twins import FOLDERS
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.kv_write.triton import kv_write
from workers.kernels.launch.triton import check_flat
from workers.lanes.prepared import op_of
from workers.targets import devices


def ops_of(module: str) -> dict[str, Op]:
    """Return the ops that a module defines, by name."""
    found = vars(import_module(module)).items()
    public = {name: each for name, each in found if isfunction(each) and each.__module__ == module and name[0] != "_"}
    return {name: each for name, each in public.items() if list(signature(each).parameters) == ["a"]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_twins_of_an_op_take_the_same_arguments(folder: str) -> None:
    twins, defined = (ops_of(f"workers.kernels.{folder}.{kind}") for kind in ("triton", "definition"))
    assert twins
    for name, twin in twins.items():
        assert op_of(twin).name == op_of(defined[name]).name == name
        assert op_of(twin).arguments is op_of(defined[name]).arguments
        assert op_of(twin).arguments.__name__ == name.title().replace("_", "")


def test_parts_of_the_engine_are_exactly_the_ops_with_twins() -> None:
    ops = {(op.__module__.split(".")[2], op.__name__) for op in devices.ops_of(devices.CLEAN).values()}
    twins = {(folder, name) for folder in FOLDERS for name in ops_of(f"workers.kernels.{folder}.triton")}
    assert twins == ops


def test_check_flat_of_strided_or_2d_buffer_raises() -> None:
    words = torch.arange(6, device=DEVICE)
    check_flat(words, words[1:5], words[:0])
    with pytest.raises(ValueError, match=r"flat, contiguous buffers, not shape \(3,\) and strides \(2,\)"):
        check_flat(words, words[::2])
    with pytest.raises(ValueError, match=r"not shape \(2, 3\)"):
        check_flat(words.reshape(2, 3))


def test_op_with_strided_slice_raises_and_writes_nothing() -> None:
    ids, cache = torch.arange(3, device=DEVICE), torch.from_numpy(np.zeros(6, dtype=np.uint64)).to(DEVICE)
    with pytest.raises(ValueError, match="contiguous"):
        kv_write(KvWrite(ids, ids, ids, cache[::2], cache, 0))
    assert not cache.cpu().numpy().any()
