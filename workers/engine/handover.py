"""The hand-over between host and lanes: which pinned slot a step uses, and what is waited for before memory is used."""

from workers.lanes.lane import Event, Lane


def staging_slot(step: int, num_slots: int) -> int:
    """Return the slot of the staging ring in which a step is prepared."""
    return step % num_slots


def wait_for_readers(h2d: Lane, inputs_read: Event) -> None:
    """Let no copy of inputs run before the step before has read its own."""
    h2d.wait(inputs_read)


def wait_for_output(output_done: Event) -> None:
    """Block the host until the sampled tokens of a step have landed."""
    output_done.synchronize()
