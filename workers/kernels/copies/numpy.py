"""Copies between the host and the device: one op each, so that a schedule can name it."""

from workers.kernels.copies import definition as copied


def copy_inputs(a: copied.CopyInputs) -> None:
    a.destination[:] = a.source


def copy_script(a: copied.CopyScript) -> None:
    a.destination[:] = a.source


def copy_line(a: copied.CopyLine) -> None:
    a.destination[:] = a.source


def copy_output(a: copied.CopyOutput) -> None:
    a.destination[:] = a.sampled


def copy_logprobs(a: copied.CopyLogprobs) -> None:
    a.destination[:] = a.flat


def copy_masks(a: copied.CopyMasks) -> None:
    a.destination[:] = a.source


def copy_drafts(a: copied.CopyDrafts) -> None:
    a.destination[:] = a.draft_tokens


def copy_counts(a: copied.CopyCounts) -> None:
    a.destination[:] = a.valid


def copy_accepted(a: copied.CopyAccepted) -> None:
    a.destination[:] = a.accepted
