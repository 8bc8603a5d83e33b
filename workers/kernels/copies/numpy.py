"""Copies between the host and the device: one op each, so that a schedule can name it."""

from workers.kernels.copies import definition as copied


def copy_inputs(a: copied.CopyInputs) -> None:
    """Copy the inputs of a step to the device."""
    a.destination[:] = a.source


def copy_script(a: copied.CopyScript) -> None:
    """Copy the script of a new request's drafts into the line of its state slot."""
    a.destination[:] = a.source


def copy_line(a: copied.CopyLine) -> None:
    """Copy the sampling parameters and the history of a new request into the line of its state slot."""
    a.destination[:] = a.source


def copy_output(a: copied.CopyOutput) -> None:
    """Copy the sampled tokens to the host."""
    a.destination[:] = a.sampled


def copy_logprobs(a: copied.CopyLogprobs) -> None:
    """Copy flat logprobs, or the ids they belong to, to the host."""
    a.destination[:] = a.flat


def copy_masks(a: copied.CopyMasks) -> None:
    """Copy the masks of grammars, and the columns they are for, to the device."""
    a.destination[:] = a.source


def copy_drafts(a: copied.CopyDrafts) -> None:
    """Copy the drafts of a step to the host, which checks them."""
    a.destination[:] = a.draft_tokens


def copy_counts(a: copied.CopyCounts) -> None:
    """Copy the counts of valid tokens to the host."""
    a.destination[:] = a.valid


def copy_accepted(a: copied.CopyAccepted) -> None:
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""
    a.destination[:] = a.accepted
