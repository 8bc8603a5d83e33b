"""A bound call repeats a launch on the current content of its memory, compiled on GPUs only."""

import pytest
import torch

from tests.workers.kernels.triton.launches import DEVICE
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.kv_write.triton import kv_write
from workers.kernels.launch.triton import bind, current_stream

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="an interpreted kernel is never compiled")


def test_bound_launch_uses_the_memory_it_was_bound_to() -> None:
    input_ids, positions, slots = (torch.tensor(values, device=DEVICE) for values in ([3, 5], [7, 8], [1, 0]))
    hidden, kv = (torch.zeros(2, dtype=torch.uint64, device=DEVICE) for _ in range(2))
    (again,) = bind(kv_write, KvWrite(input_ids, positions, slots, hidden, kv, 0))
    first = kv.tolist()
    input_ids.copy_(torch.tensor([5, 3], device=DEVICE))
    again(current_stream())
    changed = kv.tolist()
    expected = torch.zeros_like(kv)
    kv_write(KvWrite(input_ids, positions, slots, hidden, expected, 0))
    assert changed == expected.tolist() != first


def test_bind_of_op_without_launch_fails() -> None:
    with pytest.raises(AssertionError, match="launched no kernel"):
        bind(lambda a: None, KvWrite(None, None, None, None, None, 0))
