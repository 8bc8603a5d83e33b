"""Checks of CUDA graphs of the device; each check's name states the property."""

import gc

import pytest
import torch

from scenarios.events import Schedule
from workers.simulated_torch.backend import CUDAGraph, Stream, current_stream, graph, graph_pool_handle, stream
from workers.simulated_torch.device import Device, Watching

LAZY = Schedule(policy="lazy")
SIM = "sim"


def _doubling(numbers: torch.Tensor, pool: tuple[int, int] | None = None) -> tuple[CUDAGraph, torch.Tensor]:
    """Return a captured graph that doubles numbers, and its output tensor."""
    made = CUDAGraph()
    with graph(made, pool):
        doubled = numbers * 2
    return made, doubled


def capture_runs_no_task_and_replay_reads_current_buffers(device: Device) -> None:
    for schedule in (Schedule(), LAZY, Schedule(policy="random", seed=3)):
        device.begin(schedule, new_streams=True)
        numbers = torch.ones(4, device=SIM)
        made, doubled = _doubling(numbers)
        doubled.fill_(-1)
        assert doubled.tolist() == [-1] * 4
        for value in (3, 5):
            numbers.fill_(value)
            made.replay()
            assert doubled.tolist() == [2 * value] * 4


def host_number_keeps_its_value_of_the_capture(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    sums, ran = torch.zeros(4, device=SIM), []
    step = 1
    made = CUDAGraph()
    with graph(made):
        sums.add_(step)
        ran.append("host")
        device.enqueue("count", lambda view: view.mul_(10), (), (sums,))
    step = 7
    made.replay()
    made.replay()
    assert (sums.tolist(), ran) == ([110] * 4, ["host"])


def replayed_tasks_run_on_the_current_stream(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    numbers = torch.ones(4, device=SIM)
    made, _ = _doubling(numbers)
    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        made.replay()
    assert not device.report().races
    # A stream without a wait writes the replay's input.
    numbers.fill_(3)
    (race,) = device.end().races
    assert (race.first.write, race.second.write) == (False, True)
    assert (race.first.actor, race.first.op, race.second.op) == ("stream 2", "mul", "fill_")


def host_access_to_pinned_memory_of_a_replay_is_a_race(device: Device) -> None:
    device.begin(LAZY, new_streams=True)
    staging, numbers = torch.zeros(4, pin_memory=True), torch.zeros(4, device=SIM)
    made = CUDAGraph()
    with graph(made):
        numbers.copy_(staging, non_blocking=True)
    staging.fill_(1)
    assert not device.report().races
    made.replay()
    staging.fill_(2)
    (race,) = device.end().races
    assert (race.first.op, race.second.actor) == ("copy_h2d", "host")


def pool_memory_is_not_reused_while_it_has_graphs(device: Device) -> None:
    device.begin(Schedule(), new_streams=True)
    numbers, pool = torch.ones(700, device=SIM), graph_pool_handle()
    made, doubled = _doubling(numbers, pool)
    where = doubled.data_ptr()
    kept = device.weak_view(doubled)
    del doubled
    device.begin(Schedule(), new_streams=True)
    others = [torch.full((700,), 9.0, device=SIM) for _ in range(64)]
    assert where not in [each.data_ptr() for each in others]
    made.replay()
    assert kept.tolist() == [2] * 700
    # Another graph of the pool may use the same memory for its output.
    second, again = _doubling(numbers, pool)
    assert again.data_ptr() == where
    del made, second, again
    gc.collect()
    device.begin(Schedule(), new_streams=True)
    assert where in [torch.empty(700, device=SIM).data_ptr() for _ in range(1)] + [
        each.data_ptr() for each in [torch.empty(700, device=SIM) for _ in range(256)]
    ]


def operations_that_a_gpu_refuses_in_a_capture_are_refused(device: Device) -> None:
    device.begin(Schedule(), new_streams=True)
    numbers, side = torch.ones(4, device=SIM), Stream()
    for refused in (
        lambda: numbers.sum().item(),
        lambda: numbers.copy_(torch.ones(4)),
        lambda: side.wait_stream(current_stream()),
        lambda: torch.rand(4, device=SIM),
        numbers.nonzero,
    ):
        with pytest.raises(RuntimeError, match="not permitted while a stream is being captured"), graph(CUDAGraph()):
            refused()
    assert numbers.tolist() == [1] * 4
    with pytest.raises(RuntimeError, match="without a capture"):
        CUDAGraph().replay()


def writer_in_a_graph_is_named_by_its_captured_line(device: Device) -> None:
    device.begin(Schedule(), Watching(writers=True), new_streams=True)
    numbers = torch.ones(4, device=SIM)
    made, doubled = _doubling(numbers)
    device.step(5)
    made.replay()
    (writer,) = device.writers(doubled)
    assert (writer.step, writer.lines[0].function) == (5, "_doubling")
