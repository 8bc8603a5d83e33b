"""Copies between the host and the device, one element at a time."""

from typing import Any

from workers.kernels.copies.arguments import (
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


def _copy(source: Any, destination: Any) -> None:
    assert len(source) == len(destination), f"{len(source)} elements copied to {len(destination)}"
    for index in range(len(source)):
        destination[index] = source[index]


def copy_inputs(a: CopyInputs) -> None:
    """Copy the host's inputs of a step."""
    _copy(a.source, a.destination)


def copy_script(a: CopyScript) -> None:
    """Copy the scripted drafts of a new request."""
    _copy(a.source, a.destination)


def copy_line(a: CopyLine) -> None:
    """Copy the sampling parameters and the history of a new request."""
    _copy(a.source, a.destination)


def copy_output(a: CopyOutput) -> None:
    """Copy the sampled tokens."""
    _copy(a.sampled, a.destination)


def copy_logprobs(a: CopyLogprobs) -> None:
    """Copy flat logprobs, or the ids they belong to."""
    _copy(a.flat, a.destination)


def copy_masks(a: CopyMasks) -> None:
    """Copy the masks of grammars, and the columns they are for."""
    _copy(a.source, a.destination)


def copy_drafts(a: CopyDrafts) -> None:
    """Copy the drafts of a step."""
    _copy(a.draft_tokens, a.destination)


def copy_counts(a: CopyCounts) -> None:
    """Copy the counts of valid tokens."""
    _copy(a.valid, a.destination)


def copy_accepted(a: CopyAccepted) -> None:
    """Copy the counts of accepted tokens."""
    _copy(a.accepted, a.destination)
