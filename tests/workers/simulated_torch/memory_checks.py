"""Checks of the device's memory: the name of each is a sentence that is true when it returns."""

import torch

from tests.workers.simulated_torch.device_checks import LAZY, SIM
from workers.simulated_torch.device import Device, Watching


def memory_bears_the_tag_that_was_set_as_it_was_handed_out(device: Device) -> None:
    device.begin()
    outer, inner = device.new_tag(), device.new_tag()
    with device.tagging(outer):
        one = torch.ones(5, device=SIM)
        with device.tagging(inner):
            other = torch.ones(7, dtype=torch.int64, device=SIM)
        gone = torch.ones(9, device=SIM)
    untagged = torch.ones(11, device=SIM)
    address = gone.data_ptr()
    del gone
    (bytes_of_one,), (bytes_of_other,) = device.tagged(outer), device.tagged(inner)
    assert (bytes_of_one.dtype, bytes_of_one.numel(), bytes_of_other.numel()) == (torch.uint8, 20, 56)
    bytes_of_other.fill_(1)
    assert other.tolist() == [0x0101010101010101] * 7
    assert one.tolist() == [1] * 5
    assert untagged.tolist() == [1] * 11
    again = torch.ones(9, device=SIM)
    assert again.data_ptr() == address
    assert len(device.tagged(outer)) == 1


def the_last_writers_of_memory_are_kept_newest_first(device: Device) -> None:
    numbers = _written(device, Watching(writers=True))
    found = [(access.op, access.step) for access in device.writers(numbers)]
    assert found == [("zero_", 1), ("fill_", 0)]
    assert [access.op for access in device.writers(numbers[4:])] == ["zero_"]
    assert [access.op for access in device.writers(numbers[:4])] == ["fill_"]
    (access,) = device.writers(numbers[:4])
    assert access.lines[0].function == "_written"
    # Written over as a whole, nothing is left of them; what is handed out again is nobody's yet.
    numbers.add_(1)
    assert [access.op for access in device.writers(numbers)] == ["add"]
    del numbers
    assert device.writers(torch.empty(8, device=SIM)) == ()
    assert device.writers(_written(device, Watching())) == ()


def _written(sim: Device, watching: Watching) -> torch.Tensor:
    """Return eight numbers of which the first four are of one task, the others of one in the next step."""
    sim.begin(LAZY, watching)
    numbers = torch.empty(8, device=SIM)
    numbers.fill_(1)
    sim.step(1)
    numbers[4:].zero_()
    return numbers
