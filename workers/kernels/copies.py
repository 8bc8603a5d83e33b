"""Copies between the host and the device: one op each, so that a schedule can name it."""

from workers.kernels.signature import In, Out


def copy_inputs(source: In, destination: Out) -> None:
    """Copy everything the host says about a step to the device."""
    destination[:] = source


def copy_script(source: In, destination: Out) -> None:
    """Copy the drafts a new request is to be proposed into the line of its state slot."""
    destination[:] = source


def copy_line(source: In, destination: Out) -> None:
    """Copy the sampling parameters and the history of a new request into the line of its state slot."""
    destination[:] = source


def copy_output(sampled: In, destination: Out) -> None:
    """Copy the sampled tokens to the host."""
    destination[:] = sampled


def copy_logprobs(flat: In, destination: Out) -> None:
    """Copy flat logprobs, or the ids they belong to, to the host."""
    destination[:] = flat


def copy_masks(source: In, destination: Out) -> None:
    """Copy the masks of grammars, and the columns they are for, to the device."""
    destination[:] = source


def copy_drafts(draft_tokens: In, destination: Out) -> None:
    """Copy the drafts of a step to the host, which checks them."""
    destination[:] = draft_tokens


def copy_counts(valid: In, destination: Out) -> None:
    """Copy the counts of valid tokens to the host."""
    destination[:] = valid


def copy_accepted(accepted: In, destination: Out) -> None:
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""
    destination[:] = accepted
