"""Copies between host and device; copies that would change values are refused."""

import pytest
import torch

from tests.workers.kernels.triton.launches import DEVICE
from workers.kernels.copies import triton as copies
from workers.kernels.copies.definition import CopyAccepted, CopyCounts, CopyInputs, CopyOutput


def test_copy_between_pinned_and_device_memory() -> None:
    there, back = torch.zeros(7, dtype=torch.int64, device=DEVICE), torch.zeros(7, dtype=torch.int64)
    source = torch.arange(7)
    if DEVICE == "cuda":
        source, back = source.pin_memory(), back.pin_memory()
    copies.copy_inputs(CopyInputs(source, there))
    copies.copy_output(CopyOutput(there, back))
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    assert back.tolist() == list(range(7))


def test_copy_of_other_shape_or_dtype_raises() -> None:
    words = torch.zeros(7, dtype=torch.int64, device=DEVICE)
    with pytest.raises(AssertionError, match="1 elements copied to 7"):
        copies.copy_counts(CopyCounts(words[:1], words))
    with pytest.raises(AssertionError, match=r"torch.int64 copied to torch.int32"):
        copies.copy_accepted(CopyAccepted(words, words.to(torch.int32)))
