"""Copies between host and device: one op each, so that a schedule can refer to it by name.

The GPU's copy engines do them, on the CUDA stream of the lane; host memory must be pinned.
"""

from torch import Tensor

from workers.kernels.copies import definition as copied
from workers.kernels.launch.triton import check_flat


def copy_inputs(a: copied.CopyInputs) -> None:
    _copy(a.source, a.destination)


def copy_script(a: copied.CopyScript) -> None:
    _copy(a.source, a.destination)


def copy_line(a: copied.CopyLine) -> None:
    _copy(a.source, a.destination)


def copy_output(a: copied.CopyOutput) -> None:
    _copy(a.sampled, a.destination)


def copy_logprobs(a: copied.CopyLogprobs) -> None:
    _copy(a.flat, a.destination)


def copy_masks(a: copied.CopyMasks) -> None:
    _copy(a.source, a.destination)


def copy_drafts(a: copied.CopyDrafts) -> None:
    _copy(a.draft_tokens, a.destination)


def copy_counts(a: copied.CopyCounts) -> None:
    _copy(a.valid, a.destination)


def copy_accepted(a: copied.CopyAccepted) -> None:
    _copy(a.accepted, a.destination)


def _copy(source: Tensor, destination: Tensor) -> None:
    check_flat(source, destination)
    # PyTorch would broadcast a tensor of one element, and convert another dtype with a kernel.
    assert source.shape == destination.shape, f"{source.numel()} elements copied to {destination.numel()}"
    assert source.dtype == destination.dtype, f"{source.dtype} copied to {destination.dtype}"
    destination.copy_(source, non_blocking=True)
