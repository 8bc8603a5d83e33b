"""Copies between the host and the device: one op each, so that a schedule can name it."""

from workers.kernels.signature import In, Out


def copy_row_inputs(source: In, destination: Out) -> None:
    """Copy what the host says about rows to the device."""
    destination[:] = source


def copy_token_inputs(source: In, destination: Out) -> None:
    """Copy what the host says about tokens to the device."""
    destination[:] = source


def copy_block_table(source: In, destination: Out) -> None:
    """Copy the block tables of the batch to the device."""
    destination[:] = source


def copy_fresh_blocks(source: In, destination: Out) -> None:
    """Copy the list of blocks that change hands to the device."""
    destination[:] = source


def copy_script(source: In, destination: Out) -> None:
    """Copy the drafts a new request is to be proposed into the line of its state slot."""
    destination[:] = source


def copy_output(sampled: In, destination: Out) -> None:
    """Copy the sampled tokens to the host."""
    destination[:] = sampled


def copy_counts(valid: In, destination: Out) -> None:
    """Copy the counts of valid tokens to the host."""
    destination[:] = valid


def copy_accepted(accepted: In, destination: Out) -> None:
    """Copy the counts of accepted tokens to the host, for recurrent layers that take them from there."""
    destination[:] = accepted
