"""Copies between the host and the device: one op each, so that a schedule can name it."""

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


def copy_inputs(a: CopyInputs) -> None:
    """Copy the inputs of a step to the device."""
    a.destination[:] = a.source


def copy_script(a: CopyScript) -> None:
    """Copy the script of a new request's drafts into the line of its state slot."""
    a.destination[:] = a.source


def copy_line(a: CopyLine) -> None:
    """Copy the sampling parameters and the history of a new request into the line of its state slot."""
    a.destination[:] = a.source


def copy_output(a: CopyOutput) -> None:
    """Copy the sampled tokens to the host."""
    a.destination[:] = a.sampled


def copy_logprobs(a: CopyLogprobs) -> None:
    """Copy flat logprobs, or the ids they belong to, to the host."""
    a.destination[:] = a.flat


def copy_masks(a: CopyMasks) -> None:
    """Copy the masks of grammars, and the columns they are for, to the device."""
    a.destination[:] = a.source


def copy_drafts(a: CopyDrafts) -> None:
    """Copy the drafts of a step to the host, which checks them."""
    a.destination[:] = a.draft_tokens


def copy_counts(a: CopyCounts) -> None:
    """Copy the counts of valid tokens to the host."""
    a.destination[:] = a.valid


def copy_accepted(a: CopyAccepted) -> None:
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""
    a.destination[:] = a.accepted
