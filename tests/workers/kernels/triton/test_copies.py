"""Copies move what their definitions move, between the host and the device too."""

import numpy as np
import pytest
import torch

from tests.workers.kernels.calls import modes_of
from tests.workers.kernels.triton.launches import DEVICE, assert_equal
from workers.kernels.copies import triton as copies
from workers.kernels.copies import vectorised as definition
from workers.kernels.copies.arguments import CopyAccepted, CopyCounts, CopyInputs, CopyOutput

OPS = (
    *("copy_inputs", "copy_script", "copy_line", "copy_masks"),
    *("copy_output", "copy_logprobs", "copy_drafts", "copy_counts", "copy_accepted"),
)


@pytest.mark.parametrize("name", OPS)
def test_a_copy_moves_every_element_and_no_other(name: str) -> None:
    source = np.random.default_rng(0).integers(-9, 9, 33)
    first = next(iter(modes_of(getattr(copies, name))))
    arguments = {first: source, "destination": np.full(33, 77)}
    assert_equal(getattr(copies, name), getattr(definition, name), **arguments)


def test_a_copy_crosses_between_pinned_memory_and_the_device() -> None:
    there, back = torch.zeros(7, dtype=torch.int64, device=DEVICE), torch.zeros(7, dtype=torch.int64)
    source = torch.arange(7)
    if DEVICE == "cuda":
        source, back = source.pin_memory(), back.pin_memory()
    copies.copy_inputs(CopyInputs(source, there))
    copies.copy_output(CopyOutput(there, back))
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    assert back.tolist() == list(range(7))


def test_a_copy_refuses_to_repeat_or_to_convert() -> None:
    words = torch.zeros(7, dtype=torch.int64, device=DEVICE)
    with pytest.raises(AssertionError, match="1 elements copied to 7"):
        copies.copy_counts(CopyCounts(words[:1], words))
    with pytest.raises(AssertionError, match=r"torch.int64 copied to torch.int32"):
        copies.copy_accepted(CopyAccepted(words, words.to(torch.int32)))
