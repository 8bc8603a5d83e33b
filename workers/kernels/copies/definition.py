"""Copies between the host and the device: one op each, so that a schedule can name it."""

from typing import Annotated

from workers.kernels.argument import ANY_DTYPE, Arguments, In, Memory, Out, arguments


@arguments
class CopyInputs(Arguments):
    """Copy the host's inputs of a step to the device."""

    source: Annotated[Memory, In("int64", "length", of=("staging",))]
    destination: Annotated[Memory, Out("int64", "length", of=("inputs",))]


@arguments
class CopyScript(Arguments):
    """Copy the scripted drafts of a new request into the line of its state slot."""

    source: Annotated[Memory, In("int64", "length", of=("staging_scripts",))]
    destination: Annotated[Memory, Out("int64", "length", of=("script",))]


@arguments
class CopyLine(Arguments):
    """Copy the sampling parameters and the history of a new request into the line of its state slot."""

    source: Annotated[Memory, In("int64", "length", of=("staging_lines",))]
    destination: Annotated[Memory, Out("int64", "length", of=("lines",))]


@arguments
class CopyOutput(Arguments):
    """Copy the sampled tokens to the host."""

    sampled: Annotated[Memory, In("int64", "length")]
    destination: Annotated[Memory, Out("int64", "length", of=("output",))]


@arguments
class CopyLogprobs(Arguments):
    """Copy flat logprobs, or the ids they belong to, to the host."""

    flat: Annotated[Memory, In(ANY_DTYPE, "length", of=("flat_logprob_ids", "flat_logprobs"))]
    destination: Annotated[Memory, Out(ANY_DTYPE, "length", of=("logprob_ids", "logprobs"))]


@arguments
class CopyMasks(Arguments):
    """Copy the masks of grammars, and the columns they are for, to the device."""

    source: Annotated[Memory, In("int64", "length", of=("staging_masks",))]
    destination: Annotated[Memory, Out("int64", "length", of=("masks",))]


@arguments
class CopyDrafts(Arguments):
    """Copy the drafts of a step to the host, which checks them."""

    draft_tokens: Annotated[Memory, In("int64", "length")]
    destination: Annotated[Memory, Out("int64", "length", of=("drafts",))]


@arguments
class CopyCounts(Arguments):
    """Copy the counts of valid tokens to the host."""

    valid: Annotated[Memory, In("int64", "B")]
    destination: Annotated[Memory, Out("int64", "B", of=("counts",))]


@arguments
class CopyAccepted(Arguments):
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""

    accepted: Annotated[Memory, In("int64", "B")]
    destination: Annotated[Memory, Out("int64", "B", of=("accepted_counts",))]


def copy_inputs(a: CopyInputs) -> None:
    """Copy the host's inputs of a step."""
    a.destination[:] = a.source


def copy_script(a: CopyScript) -> None:
    """Copy the scripted drafts of a new request."""
    a.destination[:] = a.source


def copy_line(a: CopyLine) -> None:
    """Copy the sampling parameters and the history of a new request."""
    a.destination[:] = a.source


def copy_output(a: CopyOutput) -> None:
    """Copy the sampled tokens."""
    a.destination[:] = a.sampled


def copy_logprobs(a: CopyLogprobs) -> None:
    """Copy flat logprobs, or the ids they belong to."""
    a.destination[:] = a.flat


def copy_masks(a: CopyMasks) -> None:
    """Copy the masks of grammars, and the columns they are for."""
    a.destination[:] = a.source


def copy_drafts(a: CopyDrafts) -> None:
    """Copy the drafts of a step."""
    a.destination[:] = a.draft_tokens


def copy_counts(a: CopyCounts) -> None:
    """Copy the counts of valid tokens."""
    a.destination[:] = a.valid


def copy_accepted(a: CopyAccepted) -> None:
    """Copy the counts of accepted tokens."""
    a.destination[:] = a.accepted
