"""Checks of batch copies between addresses: bytes, order, and the completion callback."""

import pytest
import torch

from scenarios.events import Schedule
from workers.simulated_torch.backend import Stream, current_stream, stream, synchronize
from workers.simulated_torch.batch_copies import Addresses, BatchCopies
from workers.simulated_torch.device import Device

PAGE = 8
LAZY = Schedule(policy="lazy")


def _tables(*rows: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    sources, targets, sizes = torch.tensor(rows).T
    return sources.contiguous(), targets.contiguous(), sizes.contiguous()


def _batch(machine: Device, in_any_order: bool, waits: bool) -> tuple[list[int], int]:
    """Write a KV cache and copy two of its pages to a pinned pool on another stream.

    Return the first byte of each page of the pool, and the number of races.
    """
    cache, pool = (
        torch.zeros(3, PAGE, dtype=torch.int8, device="sim"),
        torch.zeros(3, PAGE, dtype=torch.int8).pin_memory(),
    )
    synchronize()
    completed: Addresses = []
    copies, other = BatchCopies("store_blocks", [cache], [pool]), Stream()
    copies.on_complete = completed.extend
    machine.begin(LAZY)
    cache.copy_(torch.arange(3 * PAGE, dtype=torch.int8).view(3, PAGE).to("sim"))
    first, there = cache.data_ptr(), pool.data_ptr()
    if waits:
        other.wait_stream(current_stream())
    with stream(other):
        copies(*_tables((first + 2 * PAGE, there, PAGE), (first, there + PAGE, PAGE)), in_any_order)
    other.synchronize()
    races = len(machine.end().races)
    assert completed == [(first + 2 * PAGE, there, PAGE), (first, there + PAGE, PAGE)]
    return pool[:, 0].tolist(), races


def batch_copies_after_the_work_that_its_stream_waits_for(device: Device) -> None:
    assert _batch(device, in_any_order=False, waits=True) == ([2 * PAGE, 0, 0], 0)


def batch_on_a_stream_without_a_wait_races(device: Device) -> None:
    _, races = _batch(device, in_any_order=False, waits=False)
    assert races == 1


def batch_read_in_any_order_races_in_spite_of_the_streams_wait(device: Device) -> None:
    _, races = _batch(device, in_any_order=True, waits=True)
    assert races == 1


def address_outside_of_all_tensors_is_refused(device: Device) -> None:
    cache, pool = (
        torch.zeros(2, PAGE, dtype=torch.int8, device="sim"),
        torch.zeros(2, PAGE, dtype=torch.int8).pin_memory(),
    )
    copies = BatchCopies("load_blocks", [pool], [cache])
    with pytest.raises(ValueError, match="8 bytes at 1 are in none of 1 tensors"):
        copies(*_tables((1, cache.data_ptr(), PAGE)))


def batch_on_a_cpu_is_copied_immediately(device: Device) -> None:
    cache, pool = torch.arange(2 * PAGE, dtype=torch.int8).view(2, PAGE), torch.zeros(2, PAGE, dtype=torch.int8)
    BatchCopies("store_blocks", [cache], [pool])(*_tables((cache.data_ptr() + PAGE, pool.data_ptr(), PAGE)))
    assert pool[:, 0].tolist() == [PAGE, 0]
