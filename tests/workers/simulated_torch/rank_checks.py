"""Checks of ranks on the device: collectives, races over ranks, and ranks that wait for each other."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch

from scenarios.events import Schedule
from workers.simulated_torch.backend import Stream, current_stream, stream
from workers.simulated_torch.device import Device
from workers.simulated_torch.native import native
from workers.simulated_torch.process_group import Disagreement, Network, RankGroup
from workers.targets.child.inside.ranks import Hosts, Rank, Stuck

SIM = "sim"
SCHEDULES = (Schedule(), Schedule(policy="lazy"), *(Schedule(policy="random", seed=seed) for seed in range(4)))
# What a rank does with its group of two ranks.
Program: TypeAlias = Callable[[RankGroup], None]


def _run(on: Device, schedule: Schedule, *programs: Program) -> None:
    """Run one program for each rank, until all have ended."""
    on.begin(schedule, new_streams=True)
    hosts = Hosts([], native().default_generator())
    network = Network(on, hosts)
    hosts.begin(schedule)
    over = []

    def start(rank: Rank, program: Program) -> None:
        def run() -> None:
            native().enter_rank(1 + rank.number)
            program(RankGroup(rank.number, len(programs), "all", range(len(programs)), network))
            over.append(rank)

        hosts.start(f"rank {rank.number}", rank, run)

    for number, program in enumerate(programs):
        start(Rank(number), program)
    hosts.wait(lambda: len(over) == len(programs), "the ranks")


def all_reduce_adds_the_tensors_of_all_ranks(device: Device) -> None:
    for schedule in SCHEDULES:
        sums: dict[int, list[float]] = {}

        def program(group: RankGroup, sums: dict[int, list[float]] = sums) -> None:
            numbers = torch.full((3,), 1.0 + group.rank(), device=SIM)
            for _ in range(2):
                group.allreduce([numbers]).wait()
            sums[group.rank()] = numbers.tolist()

        _run(device, schedule, program, program)
        assert sums == {0: [6.0] * 3, 1: [6.0] * 3}
        assert not device.end().races


def ranks_gather_and_scatter_different_numbers_of_rows(device: Device) -> None:
    sizes = [2, 1]
    for schedule in SCHEDULES:
        found: dict[int, list[list[list[float]]]] = {}

        def program(group: RankGroup, found: dict[int, list[list[list[float]]]] = found) -> None:
            rows = torch.full((sizes[group.rank()], 1), 1.0 + group.rank(), device=SIM)
            (gathered,) = group.all_gather_rows([rows], sizes)
            scattered = group.reduce_scatter_rows(gathered * (1 + group.rank()), sizes)
            found[group.rank()] = [gathered.tolist(), scattered.tolist()]

        _run(device, schedule, program, program)
        gathered = [[1.0], [1.0], [2.0]]
        assert found == {0: [gathered, [[3.0], [3.0]]], 1: [gathered, [[6.0]]]}
        assert not device.end().races


def ranks_disagree_about_the_numbers_of_rows(device: Device) -> None:
    def program(group: RankGroup) -> None:
        group.all_gather_rows([torch.ones((1 + group.rank(), 1), device=SIM)], [1 + group.rank(), 1])

    with pytest.raises(Disagreement, match=r"rows \[1, 1\].*rows \[2, 1\]"):
        _run(device, Schedule(), program, program)
    device.drop()


def network_knows_the_rank_that_others_wait_for(device: Device) -> None:
    lacking = []

    def first(group: RankGroup) -> None:
        group.allreduce([torch.ones(1, device=SIM)])

    def second(group: RankGroup) -> None:
        lacking.extend([group.network.lacks(0), group.network.lacks(1)])
        group.allreduce([torch.ones(1, device=SIM)])
        lacking.append(group.network.lacks(1))

    _run(device, Schedule(), first, second)
    assert lacking == [False, True, False]


def host_goes_on_at_a_collective_of_the_device(device: Device) -> None:
    done = []

    def first(group: RankGroup) -> None:
        numbers = torch.ones(2, device=SIM)
        group.allreduce([numbers]).wait()
        done.append("launched")
        # The host waits only where it reads.
        assert numbers.tolist() == [2.0, 2.0]

    def second(group: RankGroup) -> None:
        assert done == ["launched"]
        group.allreduce([torch.ones(2, device=SIM)]).wait()

    _run(device, Schedule(), first, second)


def host_waits_at_a_collective_of_the_cpu(device: Device) -> None:
    order = []

    def program(group: RankGroup) -> None:
        order.append(("before", group.rank()))
        group.barrier()
        order.append(("after", group.rank()))

    for schedule in SCHEDULES:
        order.clear()
        _run(device, schedule, program, program)
        assert [when for when, _ in order] == ["before", "before", "after", "after"]


def root_of_a_broadcast_on_the_cpu_does_not_wait(device: Device) -> None:
    order: list[tuple[int, object]] = []

    def program(group: RankGroup) -> None:
        numbers = torch.full((2,), 1.0 + group.rank())
        group.broadcast([numbers]).wait()
        order.append((group.rank(), numbers.tolist()))
        group.barrier()

    def late(group: RankGroup) -> None:
        order.append((group.rank(), "begins"))
        program(group)

    _run(device, Schedule(), program, late)
    assert order == [(0, [1.0, 1.0]), (1, "begins"), (1, [1.0, 1.0])]


def message_is_received_by_its_rank(device: Device) -> None:
    received = []

    def source(group: RankGroup) -> None:
        group.send([torch.arange(4, device=SIM)], 1).wait()
        group.send([torch.arange(4)], 1).wait()

    def target(group: RankGroup) -> None:
        for where in (SIM, "cpu"):
            numbers = torch.zeros(4, dtype=torch.int64, device=where)
            group.recv([numbers], 0).wait()
            received.append(numbers.tolist())

    for schedule in SCHEDULES:
        received.clear()
        _run(device, schedule, source, target)
        assert received == [[0, 1, 2, 3]] * 2


def different_calls_are_reported_with_both_places(device: Device) -> None:
    def program(group: RankGroup) -> None:
        group.allreduce([torch.ones(2 + group.rank(), device=SIM)]).wait()

    with pytest.raises(Disagreement) as raised:
        _run(device, Schedule(), program, program)
    text = str(raised.value)
    assert "rank 0 asks for all_reduce of [2] float32" in text
    assert "rank 1 asks for all_reduce of [3] float32" in text
    assert text.count("rank_checks.py:") == 2
    device.drop()


def rank_that_leaves_out_a_collective_is_stuck(device: Device) -> None:
    def first(group: RankGroup) -> None:
        numbers = torch.ones(2, device=SIM)
        group.allreduce([numbers]).wait()
        numbers.tolist()

    with pytest.raises(Stuck, match=r"rank 0 waits for the device, .*all_reduce of \[2\] float32.*in first"):
        _run(device, Schedule(), first, lambda group: None)
    device.drop()


def work_of_a_rank_is_ordered_after_that_of_others_by_a_collective(device: Device) -> None:
    """Rank 1 waits for its collective; by then earlier work of rank 0 is complete, too."""

    def first(group: RankGroup) -> None:
        staging = torch.ones(4, pin_memory=True)
        numbers = torch.zeros(4, device=SIM)
        numbers.copy_(staging, non_blocking=True)
        group.allreduce([numbers]).wait()
        message = torch.zeros(1)
        group.recv([message], 1).wait()
        staging.fill_(2)

    def second(group: RankGroup) -> None:
        numbers = torch.zeros(4, device=SIM)
        group.allreduce([numbers]).wait()
        if waits:
            numbers.tolist()
        group.send([torch.ones(1)], 0).wait()

    for waits in (True, False):
        _run(device, Schedule(policy="lazy"), first, second)
        races = device.end().races
        assert len(races) == (0 if waits else 1), races


def result_of_a_copy_that_nobody_can_receive_is_no_race(device: Device) -> None:
    def program(keeps: bool) -> None:
        side, numbers = Stream(), torch.ones(1024, device=SIM)
        target = torch.zeros(1024, pin_memory=True)
        side.wait_stream(current_stream())
        with stream(side):
            target.copy_(numbers, non_blocking=True)
        # The memory of `numbers` is reused while the copy may read it.
        del numbers
        if not keeps:
            del target
        torch.full((1024,), 3.0, device=SIM)

    for keeps in (True, False):
        device.begin(Schedule(policy="lazy"), new_streams=True)
        program(keeps)
        assert len(device.end().races) == (1 if keeps else 0)


def host_that_gets_freed_memory_is_ordered_after_the_host_that_freed_it(device: Device) -> None:
    copied: list[torch.Tensor] = []
    events = []

    def first(group: RankGroup) -> None:
        side, numbers = Stream(), torch.ones(512, device=SIM)
        side.wait_stream(current_stream())
        with stream(side):
            copied.append(numbers.to("cpu", non_blocking=True))
            events.append(side.record_event())
        copied.append(numbers)
        del numbers
        group.barrier()
        # Only the allocator orders the two hosts from here on.
        group.network.waiter.wait(lambda: len(copied) == 1, "the other host")
        # The same bytes, which the copy has read on another stream.
        torch.zeros(512, device=SIM)

    def second(group: RankGroup) -> None:
        group.barrier()
        if waits:
            events[0].synchronize()
        copied.pop()

    for waits in (True, False):
        copied.clear()
        events.clear()
        _run(device, Schedule(), first, second)
        assert bool(device.end().races) != waits
