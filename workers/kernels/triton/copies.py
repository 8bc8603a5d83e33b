"""Copies between the host and the device: one op each, so that a schedule can name it.

The copy engines do them, on the stream of the lane they are launched on; host memory must be pinned.
"""

from workers.kernels.triton.signature import In, Out, check_flat


def copy_inputs(source: In, destination: Out) -> None:
    """Copy everything the host says about a step to the device."""
    _copy(source, destination)


def copy_script(source: In, destination: Out) -> None:
    """Copy the drafts a new request is to be proposed into the line of its state slot."""
    _copy(source, destination)


def copy_line(source: In, destination: Out) -> None:
    """Copy the sampling parameters and the history of a new request into the line of its state slot."""
    _copy(source, destination)


def copy_output(sampled: In, destination: Out) -> None:
    """Copy the sampled tokens to the host."""
    _copy(sampled, destination)


def copy_logprobs(flat: In, destination: Out) -> None:
    """Copy flat logprobs, or the ids they belong to, to the host."""
    _copy(flat, destination)


def copy_masks(source: In, destination: Out) -> None:
    """Copy the masks of grammars, and the columns they are for, to the device."""
    _copy(source, destination)


def copy_drafts(draft_tokens: In, destination: Out) -> None:
    """Copy the drafts of a step to the host, which checks them."""
    _copy(draft_tokens, destination)


def copy_counts(valid: In, destination: Out) -> None:
    """Copy the counts of valid tokens to the host."""
    _copy(valid, destination)


def copy_accepted(accepted: In, destination: Out) -> None:
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""
    _copy(accepted, destination)


def _copy(source: In, destination: Out) -> None:
    check_flat(source, destination)
    # A tensor of one element would be repeated, one of another type converted by a kernel.
    assert source.shape == destination.shape, f"{source.numel()} elements copied to {destination.numel()}"
    assert source.dtype == destination.dtype, f"{source.dtype} copied to {destination.dtype}"
    destination.copy_(source, non_blocking=True)
