"""Copies between the host and the device: one op each, so that a schedule can name it.

The copy engines do them, on the stream of the lane they are launched on; host memory must be pinned.
"""

from torch import Tensor

from workers.kernels.copies.definition import (
    CopyAccepted,
    CopyCounts,
    CopyDrafts,
    CopyInputs,
    CopyLine,
    CopyLogprobs,
    CopyMasks,
    CopyOutput,
    CopyScript,
)
from workers.kernels.launch.triton import check_flat


def copy_inputs(a: CopyInputs) -> None:
    """Copy the host's inputs of a step to the device."""
    _copy(a.source, a.destination)


def copy_script(a: CopyScript) -> None:
    """Copy the scripted drafts of a new request into the line of its state slot."""
    _copy(a.source, a.destination)


def copy_line(a: CopyLine) -> None:
    """Copy the sampling parameters and the history of a new request into the line of its state slot."""
    _copy(a.source, a.destination)


def copy_output(a: CopyOutput) -> None:
    """Copy the sampled tokens to the host."""
    _copy(a.sampled, a.destination)


def copy_logprobs(a: CopyLogprobs) -> None:
    """Copy flat logprobs, or the ids they belong to, to the host."""
    _copy(a.flat, a.destination)


def copy_masks(a: CopyMasks) -> None:
    """Copy the masks of grammars, and the columns they are for, to the device."""
    _copy(a.source, a.destination)


def copy_drafts(a: CopyDrafts) -> None:
    """Copy the drafts of a step to the host, which checks them."""
    _copy(a.draft_tokens, a.destination)


def copy_counts(a: CopyCounts) -> None:
    """Copy the counts of valid tokens to the host."""
    _copy(a.valid, a.destination)


def copy_accepted(a: CopyAccepted) -> None:
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""
    _copy(a.accepted, a.destination)


def _copy(source: Tensor, destination: Tensor) -> None:
    check_flat(source, destination)
    # A tensor of one element would be repeated, one of another type converted by a kernel.
    assert source.shape == destination.shape, f"{source.numel()} elements copied to {destination.numel()}"
    assert source.dtype == destination.dtype, f"{source.dtype} copied to {destination.dtype}"
    destination.copy_(source, non_blocking=True)
