"""Copies between host and device, one op each, so that schedules can delay each by name."""

from typing import Annotated

from workers.kernels.argument import ANY_DTYPE, Arguments, In, Memory, Out, arguments


@arguments
class CopyInputs(Arguments):
    """Copy the host's inputs of a step to the device."""

    source: Annotated[Memory, In("int64", "length", of=("staging",))]
    destination: Annotated[Memory, Out("int64", "length", of=("inputs",))]


@arguments
class CopyScript(Arguments):
    """Copy a new request's scripted draft tokens to the row of its state slot."""

    source: Annotated[Memory, In("int64", "length", of=("staging_scripts",))]
    destination: Annotated[Memory, Out("int64", "length", of=("script",))]


@arguments
class CopyLine(Arguments):
    """Copy a new request's sampling parameters and token history to the row of its state slot."""

    source: Annotated[Memory, In("int64", "length", of=("staging_lines",))]
    destination: Annotated[Memory, Out("int64", "length", of=("lines",))]


@arguments
class CopyOutput(Arguments):
    """Copy the sampled tokens to the host."""

    sampled: Annotated[Memory, In("int64", "length")]
    destination: Annotated[Memory, Out("int64", "length", of=("output",))]


@arguments
class CopyLogprobs(Arguments):
    """Copy flat logprobs, or their token ids, to the host."""

    flat: Annotated[Memory, In(ANY_DTYPE, "length", of=("flat_logprob_ids", "flat_logprobs"))]
    destination: Annotated[Memory, Out(ANY_DTYPE, "length", of=("logprob_ids", "logprobs"))]


@arguments
class CopyMasks(Arguments):
    """Copy grammar bitmasks, and the logits rows that they apply to, to the device."""

    source: Annotated[Memory, In("int64", "length", of=("staging_masks",))]
    destination: Annotated[Memory, Out("int64", "length", of=("masks",))]


@arguments
class CopyDrafts(Arguments):
    """Copy the draft tokens of a step to the host, for grammar checks."""

    draft_tokens: Annotated[Memory, In("int64", "length")]
    destination: Annotated[Memory, Out("int64", "length", of=("drafts",))]


@arguments
class CopyCounts(Arguments):
    """Copy the number of valid sampled tokens of each row to the host."""

    valid: Annotated[Memory, In("int64", "B")]
    destination: Annotated[Memory, Out("int64", "B", of=("counts",))]


@arguments
class CopyAccepted(Arguments):
    """Copy the accepted counts to the host, for engines whose recurrent layers read them there."""

    accepted: Annotated[Memory, In("int64", "B")]
    destination: Annotated[Memory, Out("int64", "B", of=("accepted_counts",))]


def copy_inputs(a: CopyInputs) -> None:
    """Copy the host's inputs of a step."""
    a.destination[:] = a.source


def copy_script(a: CopyScript) -> None:
    """Copy the scripted draft tokens of a new request."""
    a.destination[:] = a.source


def copy_line(a: CopyLine) -> None:
    """Copy the sampling parameters and the token history of a new request."""
    a.destination[:] = a.source


def copy_output(a: CopyOutput) -> None:
    """Copy the sampled tokens."""
    a.destination[:] = a.sampled


def copy_logprobs(a: CopyLogprobs) -> None:
    """Copy flat logprobs, or their token ids."""
    a.destination[:] = a.flat


def copy_masks(a: CopyMasks) -> None:
    """Copy grammar bitmasks, and the logits rows that they apply to."""
    a.destination[:] = a.source


def copy_drafts(a: CopyDrafts) -> None:
    """Copy the draft tokens of a step."""
    a.destination[:] = a.draft_tokens


def copy_counts(a: CopyCounts) -> None:
    """Copy the number of valid sampled tokens of each row."""
    a.destination[:] = a.valid


def copy_accepted(a: CopyAccepted) -> None:
    """Copy the accepted counts."""
    a.destination[:] = a.accepted
